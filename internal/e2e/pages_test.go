//go:build unix

package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// TestPages runs the examples of the pages in a shell, against one new standalone. Each page has its own directory. A comment above a
// block, which readers do not see, tells the test how to use the block:
//
//	<!-- run -->, <!-- run: text -->    it must succeed, and print the text
//	<!-- until: text -->                it is run again until it prints the text
//	<!-- start -->, <!-- start: port --> it runs in the background; the test uses another port
//	<!-- file: name -->                 it is the content of a file
//	<!-- before: commands -->           commands that the test runs before the block
//	<!-- not run: reason -->
//
// A block in sh without such a comment fails the test.
func TestPages(t *testing.T) {
	t.Parallel()
	p := standalone(t, filepath.Join(t.TempDir(), "data"), []string{"BELFRY_ADMIN_PASSWORD=" + adminPassword}, "--demo", "--allow-script", "sh,bash")
	s := &reader{server: p.says("console: "), nats: p.says("nats: ")}
	s.api, s.token = logIn(t, s.server, adminPassword)
	s.bin = tools(t)
	for page, also := range map[string]func(*testing.T, *reader, string){
		"README.md": nil, "README.zh-CN.md": nil, "docs/zh/from-xxl-job.md": nil, "docs/getting-started.md": nil, "docs/concepts.md": nil, "docs/files.md": nil, "docs/logs.md": nil,
		"docs/alerts.md": alertsPage, "docs/scripts.md": nil, "docs/operations.md": nil, "docs/events.md": eventsPage,
	} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath("python3"); err != nil && page == "docs/alerts.md" {
				t.Skip("NOT COVERED: the receiver of docs/alerts.md needs python3")
			}
			said := s.read(t, page)
			if also != nil {
				also(t, s, said)
			}
		})
	}
}

// reader runs the examples of pages.
type reader struct {
	server, nats, token string
	api                 *client.Client
	bin                 string   // a directory with the programs that pages call
	started             sync.Map // of *process by page: the last one that the page started
}

// example is a fenced block of a page, with the comments above it.
type example struct {
	language, text  string
	verb, arg, prep string
}

var fenced = regexp.MustCompile("(?ms)^((?:<!--[^\n]*-->\n)*)```(\\w+)\n(.*?)^```$")

// examples returns the blocks of a page that the test uses.
func examples(t *testing.T, page string) (out []example) {
	t.Helper()
	for _, m := range fenced.FindAllStringSubmatch(read(t, filepath.Join(rig.Root(t), page)), -1) {
		e := example{language: m[2], text: m[3]}
		for comment := range strings.Lines(m[1]) {
			comment = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(comment), "<!-- "), " -->")
			verb, arg, _ := strings.Cut(comment, ": ")
			switch verb {
			case "before":
				e.prep = arg
			case "run", "until", "start", "file":
				e.verb, e.arg = verb, arg
			case "not run", "ci:test":
				e.verb = "leave"
			}
		}
		if e.verb == "" && e.language == "sh" {
			t.Errorf("%s: no comment tells the test how to use this block:\n%s", page, e.text)
		}
		if e.verb != "" && e.verb != "leave" {
			out = append(out, e)
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s has no example that is executed", page)
	}
	return out
}

// read runs the examples of a page and returns their output.
func (s *reader) read(t *testing.T, page string) string {
	dir := t.TempDir()
	here := []string{
		"http://127.0.0.1:8080", s.server, "127.0.0.1:4222", strings.TrimPrefix(s.nats, "nats://"), "./belfry", "belfry",
	}
	todo := examples(t, page)
	for _, e := range todo {
		if e.verb == "start" && e.arg != "" {
			here = append(here, e.arg, rig.FreePort(t))
		}
	}
	elsewhere := strings.NewReplacer(here...)
	var all strings.Builder
	for _, e := range todo {
		text := elsewhere.Replace(e.text)
		if e.prep != "" {
			if out, err := s.sh(t, dir, elsewhere.Replace(e.prep)).CombinedOutput(); err != nil {
				t.Fatalf("before\n%s%v\n%s", text, err, out)
			}
		}
		switch e.verb {
		case "file":
			name := filepath.Join(dir, e.arg)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		case "start":
			cmd := s.sh(t, dir, "exec env "+text) // env allows assignments before the command
			s.started.Store(page, start(t, page, cmd, dir, cmd.Env))
			if e.arg != "" {
				eventually(t, patience, "the started command listens", func() bool {
					conn, err := net.Dial("tcp", "127.0.0.1:"+elsewhere.Replace(e.arg))
					if err == nil {
						_ = conn.Close()
					}
					return err == nil
				})
			}
		case "until":
			eventually(t, patience, "this prints "+e.arg+":\n"+text, func() bool {
				out, err := s.sh(t, dir, text).CombinedOutput()
				return err == nil && bytes.Contains(out, []byte(e.arg))
			})
		case "run":
			out, err := s.sh(t, dir, text).CombinedOutput()
			if err != nil {
				t.Fatalf("%s%v\n%s", text, err, out)
			}
			if !bytes.Contains(out, []byte(e.arg)) {
				t.Errorf("%sdoes not print %q:\n%s", text, e.arg, out)
			}
			all.Write(out)
		}
	}
	return all.String()
}

// sh returns a command that runs a block in a shell, with the variables that earlier blocks of the page have set.
func (s *reader) sh(t *testing.T, dir, block string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "set -eua\nif [ -f .vars ]; then . ./.vars; fi\n"+block+"\nexport -p > .vars")
	cmd.Dir = dir
	cmd.Env = append(rig.Env(), "HOME="+dir, "PATH="+s.bin+":"+os.Getenv("PATH"), "TOKEN="+s.token,
		"BELFRY_SERVER="+s.server, "BELFRY_TOKEN="+s.token, "BELFRY_NATS_URL="+s.nats)
	return cmd
}

// alertsPage checks the output of the receiver of docs/alerts.md. The alert of the failure can be delivered last, and then it has the text that the page gives the channel
// afterwards.
func alertsPage(t *testing.T, s *reader, _ string) {
	receiver, _ := s.started.Load("docs/alerts.md")
	printed := receiver.(*process).stdout
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the receiver printed:\n%s", printed.text())
		}
	})
	eventually(t, patience, "the receiver gets the alerts of the failure and of the recovery, in any order", func() bool {
		said := printed.text()
		failed := strings.Contains(said, "demo/backup failed") || strings.Contains(said, "failed: handler_error")
		return failed && strings.Contains(said, "recovered after 2 failed")
	})
	if said := printed.text(); strings.Contains(said, "forgery") {
		t.Error("the receiver got a forgery")
	}
}

// eventsPage checks the runs that the orders of docs/events.md fired.
func eventsPage(t *testing.T, s *reader, said string) {
	eventually(t, patience, "all events are accepted", func() bool {
		events, err := s.api.Events(t.Context(), client.EventFilter{Name: "orders.created"}, 100)
		return err == nil && len(events) == 4
	})
	var shipped []string
	eventually(t, patience, "the runs that they fired have ended", func() bool {
		runs, err := s.api.Runs(t.Context(), client.RunFilter{Cause: "event", State: "succeeded"}, 100)
		if err != nil || len(runs) < 3 {
			return false
		}
		params := make(map[string]bool)
		for _, r := range runs {
			if r.State == domain.Succeeded {
				params[r.Output] = true
			}
		}
		shipped = slices.Sorted(maps.Keys(params))
		return len(runs) == 3
	})
	want := []string{"order 7 of orders.created", "order 8 of orders.created", "order 9 of orders.created"}
	if !slices.Equal(shipped, want) {
		t.Errorf("shipped %q, want %q", shipped, want)
	}
	if !strings.Contains(said, "its filter said false") {
		t.Errorf("the page's commands printed:\n%s", said)
	}
}

// tools creates a directory with the programs that pages call: belfry, nats, and curl if the machine has none.
func tools(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, as := range map[string]string{"belfry": "belfry", "nats": "nats-pub", "curl": "curl"} {
		if _, err := exec.LookPath(name); err == nil && name == "curl" {
			continue
		}
		text := fmt.Sprintf("#!/bin/sh\n%s=%s exec %s \"$@\"\n", envAs, as, self)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
