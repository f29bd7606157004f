package outage_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/belfryhq/belfry/internal/outage"
)

var begin = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func at(after time.Duration) time.Time { return begin.Add(after) }

// ids lists the troubles with the time since when they are present.
func ids(w *outage.Watch) string {
	var all []string
	for _, t := range w.Troubles() {
		all = append(all, fmt.Sprintf("%s %d since %v", t.ID(), t.Count, t.Since.Sub(begin)))
	}
	return strings.Join(all, "; ")
}

func servers(down ...string) []outage.Server {
	var all []outage.Server
	for _, name := range []string{outage.Postgres, outage.NATS, outage.JetStream} {
		s := outage.Server{Name: name}
		if slices.Contains(down, name) {
			s.Err = errors.New("dial db.internal:5432")
		}
		all = append(all, s)
	}
	return all
}

// state is a healthy state with these processes, each written as role/name.
func state(processes ...string) outage.State {
	s := outage.State{Connections: 10, MaxConnections: 100}
	for _, p := range processes {
		role, name, _ := strings.Cut(p, "/")
		s.Processes = append(s.Processes, outage.Process{Role: role, Name: name})
	}
	return s
}

func TestServers(t *testing.T) {
	var w outage.Watch
	check := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	// An acknowledgement that an earlier process has left ends.
	check("ended at first", strings.Join(w.Servers(at(0), servers()), " "), "server_unavailable:jetstream server_unavailable:nats server_unavailable:postgres")
	check("all are up", ids(&w), "")
	w.Servers(at(2*time.Second), servers(outage.Postgres))
	w.Servers(at(4*time.Second), servers(outage.Postgres, outage.NATS, outage.JetStream))
	check("without NATS, there is no JetStream", ids(&w), "server_unavailable:nats 1 since 4s; server_unavailable:postgres 1 since 2s")
	for _, trouble := range w.Troubles() {
		if strings.Contains(trouble.Why.Text, "db.internal") || trouble.Detail == "" {
			t.Errorf("only the detail has addresses: %+v", trouble)
		}
	}
	check("ended", strings.Join(w.Servers(at(6*time.Second), servers(outage.JetStream)), " "), "server_unavailable:nats server_unavailable:postgres")
	check("without a quorum", ids(&w), "server_unavailable:jetstream 1 since 6s")
	w.NATSServers(at(0), []string{"a:4222", "b:4222"}, 3)
	check("two servers", ids(&w), "server_unavailable:jetstream 1 since 6s; server_unavailable:nats_servers 2 since 0s")
	w.NATSServers(at(0), []string{"a:4222", "b:4222", "c:4222"}, 3)
	check("all servers are silent although NATS is connected", ids(&w), "server_unavailable:jetstream 1 since 6s")
}

// A known reason is for all callers, and needs no further detail.
func TestReasons(t *testing.T) {
	for reason, want := range map[outage.Reason]string{
		outage.ReadOnly:   "postgres is unavailable, or accepts no writes: it is a standby, or read-only. Without Postgres",
		outage.NotReached: "postgres is unavailable, or accepts no writes: it was not reached yet, or lacks migrations. Without Postgres",
	} {
		var w outage.Watch
		w.Servers(at(0), []outage.Server{{Name: outage.Postgres, Err: errors.New("refused"), Reason: reason}})
		if got := w.Troubles()[0]; !strings.HasPrefix(got.Why.Text, want) || got.Detail != "" || got.Why.Args["reason"] != string(reason) {
			t.Errorf("%s: %+v", reason, got)
		}
	}
}

func TestRoles(t *testing.T) {
	var w outage.Watch
	look := func(after time.Duration, s outage.State, want string) {
		t.Helper()
		w.State(at(after), s)
		if got := ids(&w); got != want {
			t.Errorf("after %v: %q, want %q", after, got, want)
		}
	}
	all := state("scheduler/a", "scheduler/b", "dispatcher/a", "console/a")
	look(0, all, "")
	look(20*time.Minute, state("scheduler/a", "scheduler/b", "console/a"), "") // a restart is no trouble
	look(20*time.Minute+30*time.Second, state("scheduler/a", "scheduler/b", "console/a"), "role_missing:dispatcher 1 since 20m0s")
	look(21*time.Minute, all, "")
	look(22*time.Minute, state("standalone/a"), "process_missing:console 1 since 22m0s")
}

// A process is missing a minute after it was seen last, until the role has as many processes as before, or for a day.
func TestProcesses(t *testing.T) {
	for _, c := range []struct {
		what string
		then []string // the processes, minute by minute
		want string   // whether a scheduler is missing in each minute
	}{
		{"one of two ends", []string{"a b", "a", "a", "a", "a c", "a c"}, ".xxx.."},
		{"both end, and one comes back", []string{"a b", "", "a", "a"}, "..xx"},
		{"a rolling update", []string{"a b", "a b c", "b c", "b c d", "c d", "c d"}, "......"},
		{"without a surge", []string{"a b", "a", "a c", "c", "c d"}, ".x..."},
		{"a process that was there for a moment", []string{"a b x", "a b", "a b"}, "..."},
	} {
		var w outage.Watch
		schedulers := func(names string) outage.State {
			all := []string{"dispatcher/x"}
			for _, name := range strings.Fields(names) {
				all = append(all, "scheduler/"+name)
			}
			return state(all...)
		}
		w.State(at(-time.Hour), schedulers("a b"))
		got := ""
		for minute, names := range c.then {
			w.State(at(time.Duration(minute)*time.Minute), schedulers(names))
			sign := "."
			for _, trouble := range w.Troubles() {
				if trouble.Kind == outage.ProcessMissing {
					sign = "x"
					if trouble.Detail != "b" || !strings.Contains(trouble.Why.Text, "1 scheduler of 2 is down") {
						t.Errorf("%s: %+v", c.what, trouble)
					}
				}
			}
			got += sign
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
	var w outage.Watch
	w.State(at(0), state("dispatcher/x", "scheduler/a", "scheduler/b"))
	w.State(at(time.Hour), state("dispatcher/x", "scheduler/a", "scheduler/b"))
	w.State(at(2*time.Hour), state("dispatcher/x", "scheduler/a"))
	w.State(at(3*time.Hour), state("dispatcher/x", "scheduler/a"))
	if ids(&w) == "" {
		t.Error("no process is missing")
	}
	w.State(at(26*time.Hour), state("dispatcher/x", "scheduler/a"))
	if got := ids(&w); got != "" {
		t.Errorf("a day later: %s", got)
	}
}

func TestPostgres(t *testing.T) {
	var w outage.Watch
	look := func(after time.Duration, s outage.State, want string) {
		t.Helper()
		s.Processes = []outage.Process{{Role: "standalone", Name: "a"}}
		w.State(at(after), s)
		if got := ids(&w); got != want {
			t.Errorf("after %v: %q, want %q", after, got, want)
		}
	}
	full := outage.State{Connections: 95, MaxConnections: 100, Blockers: []outage.Blocker{{PID: 7, Application: "psql", Sessions: 2}, {PID: 8, Sessions: 1}}}
	look(0, full, "")
	look(20*time.Second, full, "postgres_blocked:locks 3 since 0s; postgres_connections:connections 95 since 0s")
	if blocked := w.Troubles()[0]; blocked.Detail != "pid 7 (psql), pid 8 (without a name)" {
		t.Errorf("blocked by %q", blocked.Detail)
	}
	look(30*time.Second, outage.State{Connections: 90, MaxConnections: 100}, "")
	frozen := outage.State{SchedulerSilence: time.Minute}
	look(40*time.Second, frozen, "")
	look(60*time.Second, frozen, "role_missing:scheduler 1 since 40s")
	if text := w.Troubles()[0].Why.Text; !strings.Contains(text, "No scheduler works, although 1 process is connected") {
		t.Errorf("a frozen scheduler: %q", text)
	}
}

// The number of processes that are remembered has a bound.
func TestProcessesAreBounded(t *testing.T) {
	var w outage.Watch
	for n := range 3000 {
		w.State(at(time.Duration(n)*11*time.Minute), state("scheduler/a", "dispatcher/a", fmt.Sprintf("console/%d", n), fmt.Sprintf("console/%d", n+1)))
	}
	if n := w.Remembered(); n > 1000 {
		t.Errorf("%d processes are remembered", n)
	}
}

// Each text has the words of its alert, and its runbook.
func TestWordsOfTheAlerts(t *testing.T) {
	text, err := os.ReadFile("../../deploy/prometheus/belfry.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	var w outage.Watch
	w.Servers(at(0), servers(outage.Postgres, outage.JetStream))
	for _, after := range []time.Duration{0, time.Hour, 2 * time.Hour, 3 * time.Hour} {
		s := state("console/a", "console/b")
		if after > time.Hour {
			s = state("console/a")
		}
		s.Connections, s.Blockers = 95, []outage.Blocker{{PID: 1, Sessions: 1}}
		w.State(at(after), s)
	}
	seen := map[string]bool{}
	for _, trouble := range w.Troubles() {
		seen[trouble.Alert] = true
		found := false
		for _, r := range rules.Groups[0].Rules {
			if r.Alert != trouble.Alert {
				continue
			}
			found = true
			if trouble.Runbook != r.Annotations["runbook_url"] {
				t.Errorf("%s: the runbook is %s, want %s", r.Alert, trouble.Runbook, r.Annotations["runbook_url"])
			}
			says := trouble.Why.Text
			for _, part := range literal(r.Annotations["summary"] + ". " + r.Annotations["description"]) {
				if !strings.Contains(says, part) {
					t.Errorf("%s: %q lacks %q", r.Alert, says, part)
				}
			}
		}
		if !found {
			t.Errorf("%s: there is no alert %q", trouble.ID(), trouble.Alert)
		}
	}
	for _, want := range []string{"BelfryNoScheduler", "BelfryNoDispatcher", "BelfryProcessDown", "BelfryServerAway", "BelfryJetStreamUnavailable", "BelfryBlocked", "BelfryPostgresConnections"} {
		if !seen[want] {
			t.Errorf("%s is not covered", want)
		}
	}
}

// literal returns the parts of a template that a text without numbers shares: its clauses without actions and without what only Prometheus knows.
func literal(template string) (parts []string) {
	for _, part := range strings.FieldsFunc(strings.NewReplacer("{{", "|", "}}", "|", ". ", "|").Replace(template), func(r rune) bool { return r == '|' }) {
		part = strings.TrimSuffix(strings.Trim(strings.TrimSpace(part), "."), " of")
		if strings.HasPrefix(part, "$") || strings.HasPrefix(part, "range") || part == "end" || strings.HasPrefix(part, ".") || len(strings.Fields(part)) < 4 || strings.Contains(part, "processes") || strings.HasPrefix(part, "Affected") {
			continue
		}
		parts = append(parts, part)
	}
	return parts
}
