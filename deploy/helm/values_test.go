package helm

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of values into README.md of the chart")

// TestSchemaAndValues checks that the schema describes each value of values.yaml, and that values.yaml has each value of the schema.
func TestSchemaAndValues(t *testing.T) {
	defaults, err := decoded(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "", schema(t), defaults)
}

func compare(t *testing.T, path string, schema, defaults map[string]any) {
	t.Helper()
	described := properties(schema)
	for key, value := range defaults {
		field, ok := described[key].(map[string]any)
		if !ok {
			t.Errorf("the schema lacks %s%s", path, key)
			continue
		}
		inner, _ := value.(map[string]any)
		if len(properties(field)) > 0 {
			compare(t, path+key+".", field, inner)
		}
	}
	for key := range described {
		if _, ok := defaults[key]; !ok && path+key != "global" {
			t.Errorf("values.yaml lacks %s%s", path, key)
		}
	}
}

// TestPage checks the table of values in README.md of the chart.
func TestPage(t *testing.T) {
	defaults, err := decoded(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	rows(t, &table, "", schema(t), defaults)
	page := filepath.Join(chartDir, "README.md")
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- values -->\n", "<!-- /values -->\n"
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, also := strings.Cut(rest, end)
	if !ok || !also {
		t.Fatalf("%s has no place for the values", page)
	}
	want := before + begin + "| Value | Default | Meaning |\n|---|---|---|\n" + table.String() + end + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(old) {
		t.Errorf("%s is stale: run GOWORK=off go test . -run TestPage -update in deploy/helm", page)
	}
}

// rows writes a row for each value. Values that are maps of the user are one row.
func rows(t *testing.T, out *strings.Builder, path string, schema, defaults map[string]any) {
	t.Helper()
	described := properties(schema)
	for _, key := range slices.Sorted(maps.Keys(described)) {
		field := described[key].(map[string]any)
		meaning, _ := field["description"].(string)
		if !strings.HasSuffix(meaning, ".") {
			t.Errorf("%s%s has the description %q", path, key, meaning)
		}
		inner := properties(field)
		if len(inner) > 0 {
			fmt.Fprintf(out, "| **`%s%s`** | | %s |\n", path, key, meaning)
			some, _ := defaults[key].(map[string]any)
			rows(t, out, path+key+".", field, some)
			continue
		}
		shown := ""
		if value, ok := defaults[key]; ok {
			text, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			shown = "`" + string(text) + "`"
		}
		fmt.Fprintf(out, "| `%s%s` | %s | %s |\n", path, key, shown, meaning)
		if items, ok := field["items"].(map[string]any); ok && len(properties(items)) > 0 {
			rows(t, out, path+key+"[].", items, nil)
		}
	}
}

func schema(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func properties(schema map[string]any) map[string]any {
	out, _ := schema["properties"].(map[string]any)
	return out
}
