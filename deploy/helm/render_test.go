package helm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

const chartDir = "belfry"

// release is the release that the tests render.
type release struct {
	Name, Namespace, Service string
	Revision                 int
	IsInstall, IsUpgrade     bool
}

var installed = release{Name: "belfry", Namespace: "jobs", Service: "Helm", Revision: 1, IsInstall: true}

// files gives templates access to the files of the chart.
type files struct{ dir string }

// Get returns the content of a file, or nothing if there is no such file, as Helm does.
func (f files) Get(name string) string {
	text, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil {
		return ""
	}
	return string(text)
}

// render returns the chart's manifests by the names of their templates, for values over those of values.yaml. As in Helm, values that
// the schema refuses are an error.
func render(r release, over map[string]any) (map[string]string, error) {
	values, err := decoded(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		return nil, err
	}
	values = merged(values, over)
	if err := validate(values); err != nil {
		return nil, err
	}
	chart, err := decoded(filepath.Join(chartDir, "Chart.yaml"))
	if err != nil {
		return nil, err
	}
	// Templates see the fields of Chart.yaml with capital letters.
	titled := make(map[string]any)
	for key, value := range chart {
		titled[strings.ToUpper(key[:1])+key[1:]] = value
	}
	root := template.New("chart").Option("missingkey=zero")
	root.Funcs(functions(root))
	var names []string
	for _, pattern := range []string{"templates/*", "templates/tests/*"} {
		found, err := filepath.Glob(filepath.Join(chartDir, pattern))
		if err != nil {
			return nil, err
		}
		names = append(names, slices.DeleteFunc(found, func(n string) bool { return filepath.Ext(n) == "" })...)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if _, err := root.New(name).Parse(string(text)); err != nil {
			return nil, err
		}
	}
	out := make(map[string]string)
	for _, name := range names {
		if strings.HasPrefix(filepath.Base(name), "_") {
			continue
		}
		var text bytes.Buffer
		if err := root.ExecuteTemplate(&text, name, map[string]any{"Values": values, "Chart": titled, "Release": r, "Files": files{chartDir}}); err != nil {
			return nil, err
		}
		// Helm prints "<no value>" as nothing. In a chart, it is a mistake.
		if strings.Contains(text.String(), "<no value>") {
			return nil, fmt.Errorf("%s uses a value that does not exist:\n%s", name, text.String())
		}
		out[name] = text.String()
	}
	return out, nil
}

// functions returns the functions of sprig, without those that read the environment, and the functions of Helm that the chart uses.
func functions(root *template.Template) template.FuncMap {
	f := sprig.TxtFuncMap()
	maps.DeleteFunc(f, func(name string, _ any) bool { return name == "env" || name == "expandenv" })
	f["include"] = func(name string, data any) (string, error) {
		var text strings.Builder
		err := root.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	f["required"] = func(message string, value any) (any, error) {
		if value == nil || value == "" {
			return nil, errors.New(message)
		}
		return value, nil
	}
	f["toYaml"] = func(value any) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	f["fromYaml"] = func(text string) (map[string]any, error) {
		out := make(map[string]any)
		err := yaml.Unmarshal([]byte(text), &out)
		return out, err
	}
	return f
}

// merged returns base with the values of over. Maps are merged, everything else is replaced.
func merged(base, over map[string]any) map[string]any {
	out := maps.Clone(base)
	for key, value := range over {
		inner, ok := value.(map[string]any)
		if old, both := out[key].(map[string]any); ok && both {
			value = merged(old, inner)
		}
		out[key] = value
	}
	return out
}

// validate checks values with the chart's schema.
func validate(values map[string]any) error {
	text, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	if err != nil {
		return err
	}
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("values.schema.json", schema); err != nil {
		return err
	}
	compiled, err := compiler.Compile("values.schema.json")
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(values)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	return compiled.Validate(value)
}

// decoded returns a file in YAML as a map.
func decoded(name string) (map[string]any, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	out := make(map[string]any)
	return out, yaml.UnmarshalStrict(text, &out)
}

// values returns values in YAML as a map.
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	out := make(map[string]any)
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
