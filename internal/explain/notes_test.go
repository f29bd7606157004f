package explain_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/explain"
)

// A stored message has the parts that its notes name, and at the end the handler's own words.
func TestParts(t *testing.T) {
	killed, died, later := explain.Of(explain.KilledBy, "ann: root"), explain.Of(explain.InstanceDied, "i1"), explain.Note(`["of_a_later_release"]`)
	long := strings.Repeat("x", 1<<10)
	for _, tt := range []struct {
		name    string
		notes   explain.Notes
		message string
		want    string // the codes and arguments of the parts
	}{
		{"the engine's", explain.Join(died), "instance i1 died", "instance_died(i1)"},
		{"a kill and the end", explain.Join(killed, died), "killed by ann: root: instance i1 died", "killed_by(ann: root) instance_died(i1)"},
		{"a kill and the handler's words", explain.Join(killed, ""), "killed by ann: root: no: such\nfile", "killed_by(ann: root) text(no: such\nfile)"},
		{"cut words", explain.Join(killed), "killed by ann: root: " + long, "killed_by(ann: root) text(" + long + ")"},
		{"a kill alone", explain.Join(killed), "killed by ann: root", "killed_by(ann: root)"},
		{"the handler's", explain.Join(), "instance i1 died", ""},
		{"of an older binary", explain.Join(died), "instance i2 died", ""},
		{"of an older binary, by chance with the same beginning", explain.Join(died), "instance i1 died of old age", ""},
		{"of an older binary, without a second part", explain.Join(killed, died), "killed by ann: root", ""},
		{"of an older binary, with another second part", explain.Join(killed, died), "killed by ann: root: stopped", ""},
		{"a later code", explain.Join(later), "instance i1 died", ""},
		{"a later second code", explain.Join(killed, later), "killed by ann: root: something new", ""},
		{"damaged", "x\ny", "instance i1 died", ""},
		{"no message", explain.Join(died), "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parts := tt.notes.Parts(tt.message)
			var got, texts []string
			for _, p := range parts {
				arg := p.Text
				for _, v := range p.Args {
					arg, _ = v.(string)
				}
				got, texts = append(got, string(p.Code)+"("+arg+")"), append(texts, p.Text)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("the parts are %v, want %s", got, tt.want)
			}
			if len(parts) > 0 && strings.Join(texts, ": ") != tt.message {
				t.Errorf("the texts are %q, the message is %q", texts, tt.message)
			}
		})
	}
}

// The messages of the engine in Chinese. The web console's test reads the same file.
func TestChineseMessages(t *testing.T) {
	data, err := os.ReadFile("testdata/messages.zh.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		explain.Explanation
		Chinese string `json:"zh"`
	}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	seen := map[explain.Code]bool{}
	for _, m := range all {
		seen[m.Code] = true
		var args []any
		for _, p := range explain.Params(m.Code) {
			args = append(args, m.Args[p.Name])
		}
		e := explain.Of(m.Code, args...).Explanation()
		if e.Text != m.Text || e.In(explain.English) != m.Text || e.In(explain.Chinese) != m.Chinese {
			t.Errorf("%s: %s and %s, want %s and %s", m.Code, e.Text, e.In(explain.Chinese), m.Text, m.Chinese)
		}
	}
	first := false
	for _, c := range explain.Codes() {
		if first = first || c == explain.EarlierUnfinished; first && c != explain.Text && !seen[c] {
			t.Errorf("%s is not in the file", c)
		}
	}
}

// Alerts translate the engine's parts and keep the handler's own words.
func TestMessageIn(t *testing.T) {
	const message = "killed by ann: exit status 3"
	parts := explain.Join(explain.Of(explain.KilledBy, "ann")).Parts(message)
	for _, tt := range []struct {
		parts    []explain.Explanation
		language explain.Language
		want     string
	}{
		{parts, explain.Chinese, "由 ann 终止：exit status 3"},
		{parts, explain.English, message},
		{nil, explain.Chinese, message},
	} {
		if got := explain.MessageIn(tt.parts, message, tt.language); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}
