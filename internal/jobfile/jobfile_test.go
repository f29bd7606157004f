package jobfile_test

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/jobfile"
)

// Parse returns what Write wrote, for any content of text fields.
func TestWrittenJobsAreReadAgain(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ \t\n#:'"{}\[\]&*!|>%@~a-]{0,20}`),
		rapid.SampledFrom([]string{"null", "~", "yes", "007", "1e3", "0x1", "2001-01-01", "- a", "a: b", "  x\n", "\n", "\n\n", "x\n\n", "\u2028", "\ufeff", "|\n", "---\n", "\t\n x"}))
	rapid.Check(t, func(t *rapid.T) {
		spec := domain.DefaultJobSpec()
		spec.Group, spec.Name = "default", "n"+text.Draw(t, "name")
		spec.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: text.Draw(t, "expr")}
		spec.Param, spec.Description, spec.Tags = text.Draw(t, "param"), text.Draw(t, "description"), []string{text.Draw(t, "tag")}
		spec.Script = &domain.Script{Language: "sh", Code: text.Draw(t, "code")}
		spec.Children = []domain.Child{{JobID: 7, On: domain.OnAlways}, {JobID: 8, On: domain.OnSuccess}}
		spec.Normalize()
		written, err := jobfile.Write(jobfile.Export{Jobs: []domain.Job{{JobSpec: spec}},
			JobName: func(id domain.JobID) (string, bool) { return "default/seven", id == 7 }})
		if err != nil {
			t.Fatal(err)
		}
		f, err := jobfile.Parse("it", written)
		if err != nil || len(f.Jobs) != 1 {
			t.Fatalf("%v, %d jobs, of\n%s", err, len(f.Jobs), written)
		}
		if unknown := f.Jobs[0].Resolve(func(name string) (domain.JobID, bool) { return 7, name == "default/seven" }); len(unknown) > 0 {
			t.Fatalf("unknown children %v", unknown)
		}
		raw, err := json.Marshal(f.Jobs[0].Fields)
		if err != nil {
			t.Fatal(err)
		}
		got := domain.DefaultJobSpec()
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		if changes := jobfile.Diff(spec, got); len(changes) > 0 {
			t.Fatalf("changed %+v, in\n%s", changes, written)
		}
	})
}

func TestChildrenComeFirst(t *testing.T) {
	f, err := jobfile.Parse("it", []byte(`
- {group: g, name: a, children: [{job: g/b}, {job: g/elsewhere}]}
- {group: g, name: b, children: [{job: g/c}, {job_id: 7}]}
- {group: g, name: c, children: [{job: g/a}]}
- {group: g, name: d}
`))
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, j := range f.InOrder() {
		order = append(order, j.Name)
	}
	if got := strings.Join(order, " "); got != "c b a d" {
		t.Errorf("in the order %s", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "- {group: g, name: n}", "groups: [{name: a}]\njobs:\n  - group: g\n    name: n\n", "a: &x [*x]", "? - ? - a", "|\n x", "\t", "{{{{", "%YAML 1.2\n---\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(_ *testing.T, data []byte) {
		file, err := jobfile.Parse("it", data)
		if err == nil {
			file.InOrder()
		}
	})
}
