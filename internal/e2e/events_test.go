//go:build unix

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
)

var runnable = regexp.MustCompile("(?s)<!-- run -->\n```sh\n(.*?)```")

// TestEventsPage pastes what docs/events.md says into a shell, beside a fresh standalone.
func TestEventsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	p := standalone(t, filepath.Join(t.TempDir(), "data"), []string{"BELFRY_ADMIN_PASSWORD=a-good-password"}, "--demo")
	server, natsURL := p.says("console: "), p.says("nats: ")
	api, token := logIn(t, server, "a-good-password")

	bin := tools(t)
	script := "set -eu\n"
	for _, m := range runnable.FindAllStringSubmatch(string(page), -1) {
		script += m[1]
	}
	script = strings.NewReplacer("http://127.0.0.1:8080", server, "127.0.0.1:4222", strings.TrimPrefix(natsURL, "nats://")).Replace(script)
	sh := exec.CommandContext(t.Context(), "sh", "-c", script)
	sh.Dir = t.TempDir()
	sh.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "BELFRY_SERVER="+server, "BELFRY_TOKEN="+token, "TOKEN="+token, "HOME="+sh.Dir)
	out, err := sh.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}

	var events []domain.Event
	eventually(t, patience, "all events are accepted", func() bool {
		events, err = api.Events(t.Context(), client.EventFilter{Name: "orders.created"}, 100)
		return err == nil && len(events) == 4
	})
	params := make(map[string]int)
	eventually(t, patience, "what they fired has run", func() bool {
		runs, err := api.Runs(t.Context(), client.RunFilter{Cause: "event"}, 100)
		if err != nil || len(runs) != 3 {
			return false
		}
		clear(params)
		for _, r := range runs {
			if r.State != domain.Succeeded {
				return false
			}
			params[r.Output]++
		}
		return true
	})
	for _, id := range []int{7, 8, 9} {
		if params[fmt.Sprintf("order %d of orders.created", id)] != 1 {
			t.Errorf("order %d was shipped %d times: %v\n%s", id, params[fmt.Sprintf("order %d of orders.created", id)], params, out)
		}
	}
	if !strings.Contains(string(out), "its filter said false") {
		t.Errorf("the page's commands said:\n%s", out)
	}
}

// tools makes a directory with the programs that the page calls: belfry, nats, and curl where the machine has none.
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

// natsPub is what the page uses of the command nats.
func natsPub() int {
	var server string
	m := nats.NewMsg("")
	args := os.Args[1:]
	for len(args) > 1 {
		switch args[0] {
		case "--server":
			server = args[1]
			args = args[2:]
		case "-H":
			name, value, _ := strings.Cut(args[1], ":")
			m.Header.Set(name, value)
			args = args[2:]
		default: // pub
			if args[0] != "pub" {
				m.Subject, m.Data = args[0], []byte(args[1])
				args = args[1:]
			}
			args = args[1:]
		}
	}
	nc, err := nats.Connect(server)
	if err == nil {
		defer nc.Close()
		if err = nc.PublishMsg(m); err == nil {
			err = nc.Flush()
		}
	}
	if err == nil {
		err = nc.LastError()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
