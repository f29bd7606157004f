package layout

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/domain"
)

// command is a command with its settings when no flag is given.
type command struct {
	name     string
	defaults interface{ Validate() error }
}

var commands = []command{
	{"standalone", config.DefaultStandalone()},
	{"scheduler", config.DefaultScheduler()},
	{"dispatcher", config.DefaultDispatcher()},
	{"console", config.DefaultConsole()},
	{"executor", config.DefaultExecutor()},
	{"gateway", config.DefaultGateway()},
	{"migrate", config.DefaultMigrate()},
	{"restored", config.DefaultRestored()},
	{"health", config.Health{}},
	{"conformance", config.Conformance{}},
	{"bench", config.DefaultBench()},
}

// settingsSections maps each struct of package config that declares settings to a section of docs/settings.md.
var settingsSections = map[string]string{
	"Database": "Servers", "Pool": "Servers", "NATS": "Servers", "NATSTLS": "Servers", "Timing": "Engine", "Keeping": "Engine",
	"Alerts": "Alerts and links", "Web": "Console", "OIDC": "Log-in through an identity provider", "Metrics": "Health, metrics and profiling",
	"Profiling": "Health, metrics and profiling", "Log": "Log", "Standalone": "Standalone", "Executor": "Executor", "Gateway": "Gateway", "Health": "`belfry health`",
	"Restored":    "`belfry restored`",
	"Conformance": "`belfry conformance`", "Bench": "`belfry bench`",
}

var settingsOrder = []string{
	"Servers", "Engine", "Alerts and links", "Console", "Log-in through an identity provider", "Health, metrics and profiling", "Log", "Standalone",
	"Executor", "Gateway", "`belfry restored`", "`belfry health`", "`belfry conformance`", "`belfry bench`",
}

// setting is a row of docs/settings.md.
type setting struct {
	section, name, form, deflt, help string
	commands                         []string
}

const settingsHead = `<!-- Generated from internal/config: go test ./internal/layout -run TestSettingsPage -update -->

# Settings

Each setting has a flag and an environment variable. A flag comes before the variable. ` + "`belfry COMMAND --help`" + ` shows the same.
A setting that can contain a secret also has a variable with the suffix ` + "`_FILE`" + `: see [secrets in files](security.md#secrets-in-files).

Commands such as ` + "`belfry job`" + ` use a console. They have ` + "`--server`" + ` (` + "`BELFRY_SERVER`" + `), ` + "`--token`" + ` (` + "`BELFRY_TOKEN`" + `, here an API token) and
` + "`--output`" + ` (` + "`BELFRY_OUTPUT`" + `).

A *duration* is a number with a unit, such as ` + "`90s`" + ` or ` + "`1h30m`" + `. An *address* is ` + "`HOST:PORT`" + `. Lists in variables are separated by commas,
unless stated otherwise. A flag of a list may be repeated.
`

// TestSettingsPage checks that docs/settings.md is what package config says. With -update, it writes the page.
func TestSettingsPage(t *testing.T) {
	var rows []*setting
	for _, c := range commands {
		v := reflect.ValueOf(c.defaults)
		collect(t, &rows, c, requiredFlags(c), v)
	}
	var b strings.Builder
	b.WriteString(settingsHead)
	written := 0
	for _, section := range settingsOrder {
		fmt.Fprintf(&b, "\n## %s\n\n| Setting | Value | Default | Commands | Meaning |\n|---|---|---|---|---|\n", section)
		for _, r := range rows {
			if r.section == section {
				written++
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.name, r.form, r.deflt, strings.Join(r.commands, ", "), strings.ReplaceAll(r.help, "|", `\|`))
			}
		}
	}
	if written != len(rows) || written < 80 {
		t.Fatalf("%d of %d settings are on the page", written, len(rows))
	}
	file := filepath.Join(root, "docs/settings.md")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != b.String() {
		t.Error("docs/settings.md is stale; run: go test ./internal/layout -run TestSettingsPage -update")
	}
}

// requiredFlags returns the flags that a command cannot do without.
func requiredFlags(c command) (flags []string) {
	var e *domain.Error
	if errors.As(c.defaults.Validate(), &e) {
		for _, f := range e.Fields {
			if strings.HasPrefix(f.Message, "is required") {
				flags = append(flags, f.Location)
			}
		}
	}
	return flags
}

// collect adds the settings of a struct to rows. Commands with the same setting share a row.
func collect(t *testing.T, rows *[]*setting, c command, required []string, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			collect(t, rows, c, required, v.Field(i))
			continue
		}
		s := setting{section: settingsSections[v.Type().Name()], name: nameOf(f), form: formOf(f), deflt: defaultOf(f), help: f.Tag.Get("help"), commands: []string{c.name}}
		if s.section == "" || s.help == "" {
			t.Errorf("%s.%s has no section or no help", v.Type().Name(), f.Name)
		}
		if slices.Contains(required, "--"+f.Tag.Get("name")) {
			s.deflt = "required"
		}
		at := slices.IndexFunc(*rows, func(r *setting) bool {
			return r.section == s.section && r.name == s.name && r.deflt == s.deflt && r.help == s.help
		})
		if at < 0 {
			*rows = append(*rows, &s)
		} else {
			(*rows)[at].commands = append((*rows)[at].commands, c.name)
		}
	}
}

func nameOf(f reflect.StructField) string {
	if _, positional := f.Tag.Lookup("arg"); positional {
		return "`" + strings.ToUpper(f.Tag.Get("name")) + "`"
	}
	name := "`--" + f.Tag.Get("name") + "`"
	if short := f.Tag.Get("short"); short != "" {
		name += ", `-" + short + "`"
	}
	env := f.Tag.Get("env")
	name += " `" + env + "`"
	if config.Confidential(f.Type) {
		name += " `" + env + config.FileSuffix + "`"
	}
	return name
}

var listens = regexp.MustCompile(`^[\d.]+:\d+$`)

// formOf describes the values of a setting.
func formOf(f reflect.StructField) string {
	switch {
	case f.Type == reflect.TypeFor[time.Duration]():
		return "duration"
	case f.Type == reflect.TypeFor[config.Secret]():
		return "secret"
	case f.Type == reflect.TypeFor[config.URL]():
		return "URL"
	case f.Type.Kind() == reflect.Bool:
		return "`true`, `false`"
	case f.Type.Kind() == reflect.Int:
		return "number"
	}
	if listens.MatchString(f.Tag.Get("default")) {
		return "address"
	}
	forms := map[string]string{"FILE": "file", "DIR": "directory", "HOST:PORT": "address", "https://…": "URL"}
	form := f.Tag.Get("placeholder")
	if known, ok := forms[form]; ok {
		return known
	}
	if form != "" {
		form = "`" + form + "`"
	} else {
		form = "text"
	}
	switch f.Type.Kind() {
	case reflect.Slice:
		form = "list of " + form
		if f.Tag.Get("sep") == ";" {
			form += ", separated by `;`"
		}
	case reflect.Map:
		form = "list of " + form
	}
	return form
}

func defaultOf(f reflect.StructField) string {
	switch value := f.Tag.Get("default"); {
	case value != "":
		return "`" + value + "`"
	case f.Type.Kind() == reflect.Bool:
		return "`false`"
	}
	return "none"
}
