package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// hostileSegments replace ids and names in paths.
var hostileSegments = []string{
	"..", "%2e%2e", "..%2f..%2fusers", "1%2f..%2f2", "%252e%252e%252fusers", "1%00", "%00", "%ff", "1'%20OR%20'1'='1", "1;DROP%20TABLE%20jobs--",
	"9999999999999999999999", "-1", "1e3", "0x1", "NaN", "{{.}}", "%EF%BC%91", "null", "*", "%0d%0aSet-Cookie:%20a=b", strings.Repeat("9", 5000),
}

// hostileValues replace the values of all parameters.
var hostileValues = []string{
	"", "\x00", "a\x00b", "\xff\xfe", "'; DROP TABLE jobs; --", "%' OR 1=1 --", "\\", "%", "_", "(a+)+$", "((((((((((a*)*)*)*)*)*)*)*)*)*)b", "${jndi:ldap://x}",
	"{{.}}", "-1", "0", "9223372036854775808", "1e309", "99999999999999999999h", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "294277-01-01T00:00:00Z",
	"a\r\nX-Evil: 1", "\u202e", "\u0130", strings.Repeat("a", 10_000), "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
	"am9iOi0x", "cnVuOg", "am9iOjk5OTk5OTk5OTk5OTk5OTk5OTk5", "ZmlyZXM6eyJqb2IiOjF9", "bm90aGluZw==",
}

// refused checks an answer to a hostile request: it is well formed, its status is not 5xx, and it reveals no internals.
func refused(t *testing.T, what string, a answer) {
	t.Helper()
	if a.status >= 500 || a.status < 200 || a.status >= 300 && a.status < 400 {
		t.Errorf("%s: %d %.300s", what, a.status, a.body)
	}
	if a.status >= 400 && a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s: %d is a %s", what, a.status, a.header.Get("Content-Type"))
	}
	for _, inside := range []string{"SQLSTATE", "jackc", "pgconn", "goroutine ", ".go:", "runtime error"} {
		if strings.Contains(a.body, inside) {
			t.Errorf("%s: the answer reveals %s: %.300s", what, inside, a.body)
		}
	}
	for name, values := range a.header {
		if name == "X-Evil" || strings.ContainsAny(strings.Join(values, ""), "\r\n") {
			t.Errorf("%s: header %s is %q", what, name, values)
		}
	}
	if len(a.body) > 200_000 {
		t.Errorf("%s: the answer has %d bytes", what, len(a.body))
	}
}

// unhurt checks that the server logged neither an error nor a panic, and that the resources still exist.
func (c *cast) unhurt(t *testing.T) {
	t.Helper()
	for line := range strings.Lines(c.log.String()) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "panick") {
			t.Errorf("the log has %.500s", line)
		}
	}
	for _, path := range []string{"/jobs/" + c.things["job"], "/groups/mine", "/users/vera"} {
		c.must(200, "GET", "/api/v1"+path, "")
	}
}

// A hostile id, name or number in a path is refused. It never reaches another resource.
func TestHostilePaths(t *testing.T) {
	c := newCast(t)
	tried := 0
	for _, route := range slices.Sorted(maps.Keys(accesses)) {
		method, path, _ := strings.Cut(route, " ")
		parts := strings.Split(path, "/")
		for i, part := range parts {
			if !strings.HasPrefix(part, "{") || path == "/events/{name}" && method == "POST" {
				continue // events may have any valid name
			}
			for _, segment := range hostileSegments {
				hostile := slices.Clone(parts)
				for j, other := range hostile {
					if strings.HasPrefix(other, "{") {
						hostile[j] = "1"
					}
				}
				hostile[i] = segment
				a := c.raw(t, c.admin, method, "/api/v1"+strings.Join(hostile, "/"), "{}")
				refused(t, method+" "+strings.Join(hostile, "/"), a)
				if a.status < 300 && !(route == "GET /events/{name}") {
					t.Errorf("%s %s succeeds: %d %.200s", method, strings.Join(hostile, "/"), a.status, a.body)
				}
				tried++
			}
		}
	}
	if tried < 500 {
		t.Errorf("only %d paths were tried", tried)
	}
	// Variants of the open paths do not reach other paths without credentials.
	for _, path := range []string{"/healthz/../api/v1/jobs", "/api/v1/auth/login/../../jobs", "/api/v1/auth/login/", "//api/v1/jobs", "/api/v1//jobs", "/api/v1/jobs/",
		"/API/V1/JOBS", "/api/v1/jobs%2f", "/api/v1/auth%2flogin", "/healthz%2f..%2fmetrics", "/readyz/..", "/api/v1/./jobs", "/api/v1/auth/login;/../jobs", "/api/v1/auth/login%00"} {
		if a := c.raw(t, "", "GET", path, ""); a.status != http.StatusUnauthorized && a.status != http.StatusNotFound {
			t.Errorf("%s without credentials: %d %.200s", path, a.status, a.body)
		}
	}
	c.unhurt(t)
}

// raw sends a path unchanged, like a client that does not normalize paths.
func (c *cast) raw(t *testing.T, token, method, path, body string) answer {
	t.Helper()
	u, err := url.ParseRequestURI("http://x" + path)
	if err != nil {
		return answer{status: 400, header: http.Header{"Content-Type": {"application/problem+json"}}} // the server's own refusal
	}
	r := httptest.NewRequestWithContext(t.Context(), method, "/", strings.NewReader(body))
	r.URL, r.RequestURI = u, path
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	rec := httptest.NewRecorder()
	c.api.ServeHTTP(rec, r)
	return answer{rec.Code, rec.Result().Header, rec.Body.String()}
}

// Every parameter of every operation in the contract gets hostile values.
func TestHostileParameters(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: thousands of requests; -short leaves them out")
	}
	c := newCast(t)
	var contract struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name, In string }
		}
	}
	if err := json.Unmarshal([]byte(c.must(200, "GET", "/openapi.json", "").body), &contract); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for path, methods := range contract.Paths {
		for method, op := range methods {
			e := accesses[strings.ToUpper(method)+" "+strings.TrimPrefix(path, "/api/v1")]
			for _, p := range op.Parameters {
				if e.fresh {
					continue // it would end the session that later requests need
				}
				if p.In != "query" && (p.In != "header" || p.Name == "Cookie") {
					continue
				}
				at := c.fill(e.path, "admin")
				if at == "" {
					at = strings.TrimPrefix(path, "/api/v1")
				}
				for _, value := range hostileValues {
					where, header := "/api/v1"+at, []string{}
					if p.In == "query" {
						where, _, _ = strings.Cut(where, "?")
						where += "?" + url.Values{p.Name: {value}}.Encode()
					} else {
						header = []string{p.Name, value}
					}
					a := c.ask(c.admin, strings.ToUpper(method), where, c.fill(e.body, "admin"), header)
					refused(t, fmt.Sprintf("%s %s with %s %.40q", method, path, p.Name, value), a)
					tried++
				}
			}
		}
	}
	if tried < 1000 {
		t.Errorf("only %d values were tried", tried)
	}
	c.unhurt(t)
}

// Every text in every body is replaced by texts that Postgres or JSON cannot store. Other bodies are malformed, very deep or
// very large.
func TestHostileBodies(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: thousands of requests; -short leaves them out")
	}
	c := newCast(t)
	const deep = 100_000
	whole := []string{strings.Repeat("[", deep), strings.Repeat(`{"a":`, deep), `{"name":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`,
		"null", "[]", "0", `""`, "{", "\x00", "\xff", `{"a":1}{"a":1}`, `{"__proto__":{"role":"admin"}}`, "\ufeff{}", `{"name":1e400}`}
	texts := []string{`a\u0000b`, `\ud800`, `\uffff`, "'; DROP TABLE jobs; --", "{{.}}", "../../etc/passwd", "a\\r\\nX-Evil: 1"}
	for _, route := range slices.Sorted(maps.Keys(accesses)) {
		e := accesses[route]
		method, path, _ := strings.Cut(route, " ")
		if e.body == "" || e.fresh || path == "/auth/login" || path == "/import" {
			continue
		}
		if e.path != "" {
			path = e.path
		}
		for _, body := range whole {
			refused(t, fmt.Sprintf("%s with %.30q", route, body), c.ask(c.admin, method, "/api/v1"+c.fill(path, "admin"), body, nil))
		}
		var fields map[string]any
		if err := json.Unmarshal([]byte(c.fill(e.body, "admin")), &fields); err != nil {
			t.Fatalf("%s: %v", route, err)
		}
		for field := range fields {
			for _, text := range texts {
				hostile := maps.Clone(fields)
				hostile[field] = json.RawMessage(`"` + text + `"`)
				body, err := json.Marshal(hostile)
				if err != nil {
					t.Fatal(err)
				}
				refused(t, fmt.Sprintf("%s with %s %q", route, field, text), c.ask(c.admin, method, "/api/v1"+c.fill(path, "admin"), string(body), nil))
			}
		}
	}
	c.unhurt(t)
}

// YAML files whose aliases would expand to a huge document are refused.
func TestYAMLBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT COVERED: megabytes of YAML; -short leaves it out")
	}
	c := newCast(t)
	var laughs strings.Builder
	laughs.WriteString("belfry: 1\na: &a [x,x,x,x,x,x,x,x,x,x]\n")
	for letter := 'b'; letter <= 'k'; letter++ {
		before := string(letter - 1)
		fmt.Fprintf(&laughs, "%c: &%c [%s]\n", letter, letter, strings.TrimSuffix(strings.Repeat("*"+before+",", 10), ","))
	}
	laughs.WriteString("groups: *k\n")
	for name, file := range map[string]string{
		"aliases of aliases":   laughs.String(),
		"an alias of itself":   "belfry: 1\ngroups: &g [*g]\n",
		"merge keys":           "belfry: 1\nx: &x {a: 1, <<: *x}\ngroups: [{<<: *x}]\n",
		"deep":                 "belfry: 1\ngroups: " + strings.Repeat("[", 100_000),
		"deep, by indentation": "belfry: 1\ngroups:\n" + strings.Repeat("- ", 100_000),
		"many documents":       strings.Repeat("---\nbelfry: 1\n", 50_000),
		"many lines of a text": "belfry: |\n" + strings.Repeat("  x\n", 200_000),
		"many comments":        strings.Repeat("# x\n", 200_000),
		"many quotes":          "belfry: " + strings.Repeat(`"\"`, 200_000),
		"many tabs":            "belfry:" + strings.Repeat("\t", 800_000),
		"a long key":           strings.Repeat("k", 500_000) + ": 1\n",
		"tags":                 "belfry: !!binary aGk=\ngroups: !!python/object/apply:os.system [id]\n",
		"NUL":                  "belfry: 1\ngroups: [{name: \"a\\0b\"}]\n",
		"not UTF-8":            "belfry: 1\n# \xff\xfe\n",
	} {
		a := c.imported(c.admin, "?dry_run=true", file)
		refused(t, name, a)
		if a.status < 400 {
			t.Errorf("%s: %d %.300s", name, a.status, a.body)
		}
	}
	c.unhurt(t)
}

// Filters and templates that would run forever or make very large results are refused when they are saved, or stopped when an
// event arrives. The event is accepted in both cases.
func TestBombsInEventTriggers(t *testing.T) {
	c := newCast(t)
	const list = "[1,2,3,4,5,6,7,8,9,10]"
	nested := func(depth int) string {
		expr := "true"
		for i := range depth {
			expr = fmt.Sprintf("%s.all(x%d, %s)", list, i, expr)
		}
		return expr
	}
	bombs := []map[string]any{
		{"filter": nested(3)}, {"filter": nested(12)}, {"filter": nested(200)},
		{"filter": `event.data.text.matches("(a+)+$")`}, {"filter": `event.data.text.matches("((((a*)*)*)*)*b")`},
		{"filter": `"` + strings.Repeat("a", 60_000) + `" == event.data.text`}, {"filter": strings.Repeat("(", 50_000) + "true" + strings.Repeat(")", 50_000)},
		{"filter": strings.Repeat("!", 50_000) + "true"}, {"filter": "event.data.text" + strings.Repeat(" + event.data.text", 1000) + ` == ""`},
		{"param": strings.Repeat("{{range .event.data.list}}", 12) + "x" + strings.Repeat("{{end}}", 12)},
		{"param": `{{define "a"}}{{template "a" .}}{{end}}{{template "a" .}}`}, {"param": `{{printf "%1000000000d" 1}}`},
		{"param": strings.Repeat("{{.event.data.text}}", 3000)}, {"param": strings.Repeat("{{with .}}", 20_000) + strings.Repeat("{{end}}", 20_000)},
		{"param": "{{" + strings.Repeat("(", 10_000) + ".event" + strings.Repeat(")", 10_000) + "}}"},
	}
	job := json.Number(c.things["job"])
	for i, bomb := range bombs {
		bomb["name"], bomb["job_id"] = fmt.Sprint("bomb.", i), job
		body, err := json.Marshal(bomb)
		if err != nil {
			t.Fatal(err)
		}
		what := fmt.Sprintf("bomb %d, %.60s", i, body)
		made := c.ask(c.admin, "POST", "/api/v1/event-triggers", string(body), nil)
		refused(t, what, made)
		text := `"` + strings.Repeat("a", 20_000) + `"`
		a := c.ask(c.admin, "POST", fmt.Sprintf("/api/v1/events/bomb.%d", i), `{"text":`+text+`,"list":[`+strings.TrimSuffix(strings.Repeat("1,", 1000), ",")+`]}`, nil)
		refused(t, what+": its event", a)
		if a.status != 202 {
			t.Errorf("%s: its event: %d %.300s", what, a.status, a.body)
		}
	}
	c.unhurt(t)
}
