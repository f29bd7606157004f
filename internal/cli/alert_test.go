package cli

import (
	"strings"
	"testing"
)

const channelsYAML = `
- name: ops
  kind: webhook
  url: https://example.org/t0ken
  secret: 0123456789abcdef
- name: chat
  kind: slack
  url: https://example.org/t0ken
  language: zh
`

func TestAlertChannelCommands(t *testing.T) {
	newRealConsole(t)
	ok := func(stdin, args string, want ...string) string {
		t.Helper()
		r := belfry(t, stdin, strings.Fields(args)...)
		if r.want(t, ExitDone, want...); t.Failed() {
			t.Fatalf("belfry %s", args)
		}
		return r.stdout
	}
	fails := func(stdin, args string, want ...string) {
		t.Helper()
		r := belfry(t, stdin, strings.Fields(args)...)
		r.want(t, ExitFailed)
		for _, w := range want {
			if !strings.Contains(r.stdout+r.stderr, w) {
				t.Errorf("belfry %s: %q is missing in %s%s", args, w, r.stdout, r.stderr)
			}
		}
	}
	ok(channelsYAML, "alert-channel apply -f -", "created  ops", "created  chat")
	ok(channelsYAML, "alert-channel apply -f -", "updated  ops") // the client cannot see whether secrets are new
	for _, form := range []string{"yaml", "json"} {
		if got := ok(ok("", "alert-channel get ops -o "+form, "********"), "alert-channel apply -f -", "unchanged  ops"); strings.Contains(got, "t0ken") {
			t.Errorf("a secret is shown: %s", got)
		}
	}
	ok("", "alert-channel list", "NAME", "chat", "slack", "zh", "https://example.org/********")
	ok("", "alert-channel get ops", "secret", "********")
	ok("", "alert-channel test chat", "delivered  yes", "ok")
	fails("", "alert-channel test ops", "nobody is there")
	ok("group: default\nname: a\nhandler: echo\nschedule: {kind: none}\nalert: {channels: [ops]}\n", "job apply -f -", "created")
	fails("", "alert-channel delete ops", "default/a (1)")
	ok("", "alert-channel delete chat", "chat deleted")
	ok("", "alert list --job default/a --state failed", "ID", "DELIVERY")
	fails("kind: slack\n", "alert-channel apply -f -", "has no name")
	fails("name: x\nkind: pigeon\nbogus: 1\n", "alert-channel apply -f -", "pigeon", "bogus", "refused")
	belfry(t, "", "alert", "list", "--kind", "x").want(t, ExitUsage)
}
