package cli

import "github.com/belfryhq/belfry/internal/build"

type versionCmd struct {
	Output string `short:"o" env:"BELFRY_OUTPUT" enum:"table,json,yaml" default:"table" help:"Output format: table, json or yaml."`
}

func (*versionCmd) Help() string {
	return "The schema is the newest migration of Belfry's tables that this binary contains. The wire version is that of the messages between " +
		"servers and executors.\n\nExamples:\n\n    belfry version\n    belfry version -o json"
}

func (c *versionCmd) Run(a *app) error {
	b := build.Read()
	return a.print(c.Output, b, func(t *table) {
		t.pair("belfry", b.Version)
		commit := b.Commit
		if b.Modified {
			commit += " (modified)"
		}
		t.pair("commit", commit)
		t.pair("date", b.Date)
		t.pair("go", b.Go)
		t.pair("schema", b.Schema)
		t.pair("wire", b.Wire)
	})
}
