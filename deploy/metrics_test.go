package deploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// prometheusConfig has the fields of prometheus.yml that the file uses.
type prometheusConfig struct {
	Global struct {
		ScrapeInterval     string `yaml:"scrape_interval"`
		EvaluationInterval string `yaml:"evaluation_interval"`
	}
	RuleFiles     []string `yaml:"rule_files"`
	ScrapeConfigs []struct {
		JobName       string `yaml:"job_name"`
		Authorization *struct {
			CredentialsFile string `yaml:"credentials_file"`
		}
		DNS []struct {
			Names           []string
			Type            string
			Port            int
			RefreshInterval string `yaml:"refresh_interval"`
		} `yaml:"dns_sd_configs"`
	} `yaml:"scrape_configs"`
}

func prometheusSettings(t testing.TB) prometheusConfig {
	t.Helper()
	var c prometheusConfig
	strictYAML(t, "prometheus/prometheus.yml", &c)
	return c
}

type alertRules struct {
	Groups []struct {
		Name  string
		Rules []alertRule
	}
}

type alertRule struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func rules(t testing.TB) []alertRule {
	t.Helper()
	var r alertRules
	strictYAML(t, "prometheus/belfry.rules.yml", &r)
	if len(r.Groups) != 1 {
		t.Fatalf("%d groups", len(r.Groups))
	}
	return r.Groups[0].Rules
}

type dashboard struct {
	UID    string
	Panels []struct {
		ID         int
		Title      string
		Datasource struct{ Type, UID string }
		GridPos    struct{ X, Y, W, H int }
		Targets    []struct {
			Expr       string
			RefID      string
			Datasource struct{ Type, UID string }
		}
	}
}

func board(t testing.TB) dashboard {
	t.Helper()
	text, err := os.ReadFile("grafana/dashboards/belfry.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// literals returns the string literals of the packages that define metrics.
func literals(t testing.TB) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	for _, dir := range []string{"scheduler", "dispatcher", "console", "internal/app", "internal/domain", "internal/explain", "executor/wire"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if text, err := strconv.Unquote(lit.Value); err == nil {
						found[text] = true
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// builtIn are the metrics and labels of Prometheus itself and of the Go client, and the name of a metric whose package this test does not read.
var builtIn = []string{"up", "process_cpu_seconds_total", "process_resident_memory_bytes", "le", "job", "instance"}

func TestAlertRules(t *testing.T) {
	code := literals(t)
	names := make(map[string]bool)
	for _, r := range rules(t) {
		if names[r.Alert] || r.Alert == "" {
			t.Errorf("there are two alerts %q", r.Alert)
		}
		names[r.Alert] = true
		used, err := check(r.Expr, code)
		if err != nil {
			t.Errorf("%s: %v", r.Alert, err)
		}
		if r.For != "" {
			if _, err := time.ParseDuration(r.For); err != nil {
				t.Errorf("%s: %v", r.Alert, err)
			}
		}
		if !slices.Contains([]string{"page", "ticket"}, r.Labels["severity"]) || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: severity %q, annotations %q", r.Alert, r.Labels["severity"], r.Annotations)
		}
		for _, text := range r.Annotations {
			for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
				if !slices.Contains(used, m[1]) {
					t.Errorf("%s: uses the label %s, which its expression drops", r.Alert, m[1])
				}
			}
		}
	}
	for _, want := range []string{
		"BelfryFiresLate", "BelfryMissed", "BelfryRunsLost", "BelfryResultsLag", "BelfryNoScheduler", "BelfryDeadLetters", "BelfryServerAway",
	} {
		if !names[want] {
			t.Errorf("there is no alert %s", want)
		}
	}
	jobs := make(map[string]bool)
	for _, s := range prometheusSettings(t).ScrapeConfigs {
		jobs[s.JobName] = true
	}
	text, err := os.ReadFile("prometheus/belfry.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`job="([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
		if !jobs[m[1]] {
			t.Errorf("alert rules use the job %s, which prometheus.yml does not scrape", m[1])
		}
	}
}

// TestAlertRulesFire runs the tests of the alert rules: each page fires within a minute after its fault, and no other does.
func TestAlertRulesFire(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("NOT COVERED: there is no promtool on PATH to test the alert rules; Debian has it in the package prometheus")
	}
	for _, args := range [][]string{{"check", "rules", "belfry.rules.yml"}, {"test", "rules", "belfry.rules.test.yml"}} {
		tool := exec.Command(promtool, args...)
		tool.Dir = "prometheus"
		if out, err := tool.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	tests, err := os.ReadFile("prometheus/belfry.rules.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules(t) {
		if outage := r.For == "10s" || r.For == "20s"; outage && !strings.Contains(string(tests), `alertname="`+r.Alert+`"`) {
			t.Errorf("%s has no test", r.Alert)
		}
	}
}

// anchor returns the fragment of a heading in a Markdown page.
func anchor(heading string) string {
	return strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// TestRunbooks checks that each alert links to a section of docs/operations.md that names the alert.
func TestRunbooks(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := make(map[string]string)
	for section := range strings.SplitSeq(string(page), "\n##") {
		heading, text, _ := strings.Cut(section, "\n")
		sections[anchor(strings.TrimLeft(heading, "# "))] = text
	}
	for _, r := range rules(t) {
		at, found := strings.CutPrefix(r.Annotations["runbook_url"], "https://github.com/belfryhq/belfry/blob/main/docs/operations.md#")
		if !found || !strings.Contains(sections[at], "`"+r.Alert+"`") {
			t.Errorf("%s: runbook_url %q leads to no section that names the alert", r.Alert, r.Annotations["runbook_url"])
		}
	}
}

func TestDashboard(t *testing.T) {
	code := literals(t)
	var sources struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, Access, URL string
			IsDefault                    bool              `yaml:"isDefault"`
			JSONData                     map[string]string `yaml:"jsonData"`
		}
	}
	strictYAML(t, "grafana/provisioning/datasources/prometheus.yaml", &sources)
	uid := sources.Datasources[0].UID
	taken := make(map[[2]int]string)
	ids := make(map[int]bool)
	d := board(t)
	if len(d.Panels) < 10 || d.UID == "" {
		t.Fatalf("%d panels, uid %q", len(d.Panels), d.UID)
	}
	shown := make(map[string]bool)
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || len(p.Targets) == 0 || p.Datasource.UID != uid {
			t.Errorf("panel %d %q: %d targets, datasource %s", p.ID, p.Title, len(p.Targets), p.Datasource.UID)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			if target.Datasource.UID != uid {
				t.Errorf("%s: datasource %s is not provisioned", p.Title, target.Datasource.UID)
			}
			used, err := check(strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"), code)
			if err != nil {
				t.Errorf("%s: %v", p.Title, err)
			}
			for _, name := range used {
				shown[name] = true
			}
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x > 23 {
					t.Fatalf("%s overlaps %q, or exceeds the width", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	// The dashboard shows all metrics that docs/operations.md recommends to watch first.
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, first, found := strings.Cut(string(page), "Watch these first:")
	if !found {
		t.Fatal(`docs/operations.md has no list "Watch these first:"`)
	}
	for _, m := range regexp.MustCompile("`(belfry_[a-z_]+)`").FindAllStringSubmatch(first, -1) {
		if !shown[m[1]] {
			t.Errorf("the dashboard does not show %s", m[1])
		}
	}
}

// word is one lexical element of an expression.
var word = regexp.MustCompile(`^(?:\s+|"[^"\\]*"|[a-zA-Z_:][a-zA-Z0-9_:]*|\d+(?:\.\d+)?(?:[smhdwy][0-9smhdwy]*)?|=~|!~|!=|==|>=|<=|[-+*/%^<>=(){}\[\],:])`)

var (
	functions  = []string{"abs", "absent", "histogram_quantile", "increase", "min_over_time", "rate", "vector"}
	aggregates = []string{"max", "min", "sum"}
	joins      = []string{"and", "or", "unless"}
)

// check finds likely mistakes in a PromQL expression: unknown tokens, unbalanced brackets, and names that are not in the code. It is
// not a complete parser, because Prometheus's parser would add hundreds of modules. It returns the metrics and labels of the
// expression.
func check(expression string, code map[string]bool) ([]string, error) {
	var words []string
	for rest := expression; rest != ""; {
		w := word.FindString(rest)
		if w == "" {
			return nil, fmt.Errorf("cannot read %q in %s", rest, expression)
		}
		rest = rest[len(w):]
		if w = strings.TrimSpace(w); w != "" {
			words = append(words, w)
		}
	}
	if err := balanced(words); err != nil {
		return nil, fmt.Errorf("%w in %s", err, expression)
	}
	names := make(map[string]bool)
	var faults []error
	known := func(what, name string) {
		names[name] = true
		if !code[name] && !slices.Contains(builtIn, name) {
			faults = append(faults, fmt.Errorf("the %s %s is not in the code", what, name))
		}
	}
	within, labels := "", false // within is "{" inside braces; labels is true inside the parentheses of by or without
	for i, w := range words {
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		switch {
		case w == "{" || w == "}":
			within = strings.Trim(w, "}")
		case w == ")":
			labels = false
		case w == "by" || w == "without":
			if labels = next == "("; !labels {
				faults = append(faults, errors.New(w+" is not followed by labels"))
			}
		case w[0] == '"' && within == "{" && !strings.HasPrefix(w, `"belfry-`):
			for value := range strings.SplitSeq(strings.Trim(w, `"`), "|") {
				known("value", value)
			}
		case w[0] != '_' && (w[0] < 'a' || w[0] > 'z') && (w[0] < 'A' || w[0] > 'Z'):
		case within == "{" || labels:
			known("label", w)
		case slices.Contains(functions, w):
			if next != "(" {
				faults = append(faults, fmt.Errorf("%s is not called", w))
			}
		case slices.Contains(aggregates, w):
			if next != "(" && next != "by" && next != "without" {
				faults = append(faults, fmt.Errorf("%s is not called", w))
			}
		case slices.Contains(joins, w) || w == "offset":
		default:
			known("metric", strings.TrimSuffix(w, "_bucket"))
		}
	}
	return slices.Sorted(maps.Keys(names)), errors.Join(faults...)
}

func balanced(words []string) error {
	var open []string
	closes := map[string]string{")": "(", "]": "[", "}": "{"}
	for _, w := range words {
		switch w {
		case "(", "[", "{":
			open = append(open, w)
		case ")", "]", "}":
			if len(open) == 0 || open[len(open)-1] != closes[w] {
				return fmt.Errorf("%s closes nothing", w)
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("%s is not closed", open[0])
	}
	return nil
}

func TestCheckCanFail(t *testing.T) {
	code := map[string]bool{"belfry_a_total": true, "belfry_s": true, "kind": true, "dead": true}
	for expression, ok := range map[string]bool{
		`sum by (kind) (rate(belfry_a_total{kind=~"dead|dead"}[5m])) > 0.5`: true,
		`histogram_quantile(0.99, sum by (le) (rate(belfry_s_bucket[5m])))`: true,
		`absent(up{job="belfry-x"} == 1)`:                                   true,
		`belfry_b_total > 0`:                                                false,
		`sum by (sort) (belfry_a_total)`:                                    false,
		`belfry_a_total{kind="alive"}`:                                      false,
		`belfry_a_total{sort="dead"}`:                                       false,
		`raet(belfry_a_total[5m])`:                                          false,
		`rate(belfry_a_total[5m)`:                                           false,
		`sum(belfry_a_total`:                                                false,
		`sum by kind (belfry_a_total)`:                                      false,
		`belfry_a_total ! 5`:                                                false,
	} {
		if _, err := check(expression, code); (err == nil) != ok {
			t.Errorf("%s: got %v", expression, err)
		}
	}
}
