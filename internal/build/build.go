// Package build describes the build of Belfry that this process runs.
package build

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/migrations"
)

// A build without the repository's history sets these with the linker, for example
// -X github.com/belfryhq/belfry/internal/build.version=v1.2.3. Other builds get them from Go's build information.
var version, commit, date string

// Info describes a build. Its JSON is the output of `belfry version -o json`.
type Info struct {
	Version  string `json:"version"`            // of the release, or Go's version of the module
	Commit   string `json:"commit"`             // revision; "" if it is not known
	Modified bool   `json:"modified,omitempty"` // the sources differ from the commit
	Date     string `json:"date"`               // of the commit, RFC 3339; "" if it is not known
	Go       string `json:"go"`                 // version of Go
	Schema   int64  `json:"schema"`             // number of the newest migration of Belfry's tables
	Wire     int    `json:"wire"`               // version of the wire protocol
}

// Read returns the description of this binary.
func Read() Info {
	info, _ := debug.ReadBuildInfo() // nil in a binary without modules
	return read(info)
}

func read(b *debug.BuildInfo) Info {
	i := Info{Version: version, Commit: commit, Date: date, Go: runtime.Version(), Schema: migrations.Newest(), Wire: wire.Version}
	if b != nil {
		i.Version = cmp.Or(i.Version, b.Main.Version)
		for _, s := range b.Settings {
			switch s.Key {
			case "vcs.revision":
				i.Commit = cmp.Or(i.Commit, s.Value)
			case "vcs.time":
				i.Date = cmp.Or(i.Date, s.Value)
			case "vcs.modified":
				i.Modified = commit == "" && s.Value == "true"
			}
		}
	}
	i.Version = cmp.Or(i.Version, "(unknown version)")
	return i
}
