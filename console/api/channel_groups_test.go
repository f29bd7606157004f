package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Operators cannot give a job the channel of another group, and the answer does not reveal that there is one.
func TestChannelsOfGroups(t *testing.T) {
	w := newWorld(t)
	for _, g := range []string{"a", "b"} {
		w.must(201, "POST", "/api/v1/groups", `{"name":"`+g+`"}`)
	}
	channel := func(name, groups string) {
		w.must(201, "POST", "/api/v1/alert-channels", fmt.Sprintf(`{"name":%q,"kind":"webhook","url":"http://127.0.0.1:1/x","groups":%s}`, name, groups))
	}
	channel("everyones", "[]")
	channel("of-a", `["a"]`)
	channel("hidden", `["b"]`)
	if a := w.must(422, "POST", "/api/v1/alert-channels", `{"name":"x","kind":"webhook","url":"http://127.0.0.1:1/x","groups":["a","nowhere","A B"]}`); !slices.Equal(a.locations(), []string{"groups[2]"}) {
		t.Errorf("a bad group: %s", a.body)
	}
	if a := w.must(422, "POST", "/api/v1/alert-channels", `{"name":"x","kind":"webhook","url":"http://127.0.0.1:1/x","groups":["a","nowhere"]}`); !slices.Equal(a.locations(), []string{"groups[1]"}) {
		t.Errorf("an unknown group: %s", a.body)
	}
	operator := w.must(201, "POST", "/api/v1/tokens", `{"name":"op","role":"operator","groups":["a"]}`).field("token").(string)
	both := w.must(201, "POST", "/api/v1/tokens", `{"name":"both","role":"operator","groups":["a","b"]}`).field("token").(string)
	body := func(name, group, channels, more string) string {
		return fmt.Sprintf(`{"group":%q,"name":%q,"handler":"h","schedule":{"kind":"none"},"alert":{"channels":%s}%s}`, group, name, channels, more)
	}
	made := w.do(operator, "POST", "/api/v1/jobs", body("mine", "a", `["everyones","of-a"]`, ""))
	if made.status != 201 {
		t.Fatalf("channels of the group: %d %s", made.status, made.body)
	}
	job := fmt.Sprintf("/api/v1/jobs/%v", made.field("id"))

	file := func(name, channels string) string {
		return "belfry: 1\njobs:\n  - {group: a, name: " + name + ", handler: h, schedule: {kind: none}, alert: {channels: " + channels + "}}\n"
	}
	asYAML := []string{"Content-Type", "application/yaml"}
	for what, ask := range map[string]func(channel string) answer{
		"create": func(c string) answer {
			return w.do(operator, "POST", "/api/v1/jobs", body("new", "a", `["of-a","`+c+`"]`, ""))
		},
		"create badly": func(c string) answer {
			return w.do(operator, "POST", "/api/v1/jobs", body("new", "a", `["of-a","`+c+`"]`, `,"retries":-1`))
		},
		"replace": func(c string) answer { return w.do(operator, "PUT", job, body("mine", "a", `["of-a","`+c+`"]`, "")) },
		"patch":   func(c string) answer { return w.do(operator, "PATCH", job, `{"alert":{"channels":["of-a","`+c+`"]}}`) },
		"import": func(c string) answer {
			return w.do(operator, "POST", "/api/v1/import", file("new", "[of-a, "+c+"]"), asYAML...)
		},
		"import a change": func(c string) answer {
			return w.do(operator, "POST", "/api/v1/import", file("mine", "[of-a, "+c+"]"), asYAML...)
		},
		"try an import": func(c string) answer {
			return w.do(operator, "POST", "/api/v1/import?dry_run=true", file("new", "[of-a, "+c+"]"), asYAML...)
		},
		"another group": func(c string) answer {
			return w.do(both, "POST", "/api/v1/jobs", body("new", "a", `["of-a","`+c+`"]`, ""))
		},
	} {
		hidden, missing := ask("hidden"), ask("nothing")
		at := "alert.channels[1]"
		if strings.Contains(what, "import") {
			at = "jobs[0]." + at
		}
		if hidden.status != 422 || strings.ReplaceAll(hidden.body, "hidden", "nothing") != missing.body || !slices.Equal(hidden.locations(), []string{at}) {
			t.Errorf("%s: hidden %d %s, missing %d %s; both answers must be the same", what, hidden.status, hidden.body, missing.status, missing.body)
		}
	}
	if got := w.must(200, "GET", "/api/v1/jobs?group=a", ""); strings.Contains(got.body, "hidden") || len(got.field("items").([]any)) != 1 {
		t.Errorf("afterwards the jobs are %s", got.body)
	}

	// A channel that an admin has added stays when an operator edits the job, but not when the job moves to another group.
	w.must(200, "PATCH", job, `{"alert":{"channels":["of-a","hidden"]}}`)
	for _, try := range []struct {
		method, body string
		status       int
	}{
		{"PATCH", `{"description":"d"}`, 200}, {"PUT", body("mine", "a", `["of-a","hidden"]`, ""), 200},
		{"PATCH", `{"group":"b"}`, 422}, {"PATCH", `{"group":"b","alert":{"channels":["hidden","everyones"]}}`, 200},
		{"PATCH", `{"alert":{"channels":["hidden"]}}`, 200}, {"PATCH", `{"alert":{"channels":["of-a"]}}`, 422},
	} {
		if a := w.do(both, try.method, job, try.body); a.status != try.status {
			t.Errorf("%s %s: %d %s", try.method, try.body, a.status, a.body)
		}
	}
	// Channels of earlier versions have no groups.
	w.exec(`UPDATE alert_channels SET settings = settings - 'groups' WHERE name = 'everyones'`)
	if a := w.must(200, "GET", "/api/v1/alert-channels/everyones", ""); fmt.Sprint(a.field("groups")) != "[]" {
		t.Errorf("an old channel: %s", a.body)
	}
	if a := w.do(operator, "POST", "/api/v1/jobs", body("newer", "a", `["everyones"]`, "")); a.status != 201 {
		t.Errorf("an old channel: %d %s", a.status, a.body)
	}
	// The form of the web console sends the groups that it has read.
	var shown map[string]any
	if err := json.Unmarshal([]byte(w.must(200, "GET", "/api/v1/alert-channels/of-a", "").body), &shown); err != nil || fmt.Sprint(shown["groups"]) != "[a]" {
		t.Errorf("the channel is %v, %v", shown, err)
	}
}
