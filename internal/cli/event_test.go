package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

// letterBox holds one dead letter.
type letterBox struct{ gone bool }

var deadLetter = domain.DeadLetter{Seq: 7, Kind: "event", Group: "a", Subject: "belfry.v1.event.a", Error: "is not JSON", Bytes: 1, Data: "{", DataBase64: []byte("{"),
	Headers: map[string][]string{"X-One": {"1"}}}

func (b *letterBox) DeadLetters(_ context.Context, kind, group string, _ uint64, _ int) ([]domain.DeadLetter, error) {
	if b.gone || (kind != "" && kind != deadLetter.Kind) || (group != "" && group != deadLetter.Group) {
		return nil, nil
	}
	return []domain.DeadLetter{deadLetter}, nil
}

func (b *letterBox) CountDeadLetters(context.Context) (domain.DeadLetterCount, error) {
	if b.gone {
		return domain.DeadLetterCount{}, nil
	}
	return domain.DeadLetterCount{Letters: 1, Newest: deadLetter.Seq}, nil
}

func (b *letterBox) DeadLetter(_ context.Context, seq uint64) (domain.DeadLetter, error) {
	if b.gone || seq != deadLetter.Seq {
		return domain.DeadLetter{}, domain.NewError(domain.NotFound, "there is no such dead letter")
	}
	return deadLetter, nil
}

func (b *letterBox) Replay(ctx context.Context, seq uint64) (domain.DeadLetter, error) {
	return b.DeadLetter(ctx, seq)
}

func (b *letterBox) Delete(ctx context.Context, seq uint64) (domain.DeadLetter, error) {
	l, err := b.DeadLetter(ctx, seq)
	b.gone = b.gone || err == nil
	return l, err
}

func TestEventCommands(t *testing.T) {
	newRealConsole(t)
	run := func(code int, stdin string, args []string, want ...string) string {
		t.Helper()
		r := belfry(t, stdin, args...)
		for _, s := range want {
			if r.code != code || !strings.Contains(r.stdout+r.stderr, s) {
				t.Fatalf("belfry %s: exit code %d, want %d and %q:\n%s%s", strings.Join(args, " "), r.code, code, s, r.stdout, r.stderr)
			}
		}
		return r.stdout
	}
	ok := func(stdin, args string, want ...string) string {
		t.Helper()
		return run(ExitDone, stdin, strings.Fields(args), want...)
	}
	ok(reportYAML, "job apply -f -", "created")
	const file = "name: orders.*\njob: default/report\nfilter: event.data.amount > 100.0\nparam: '{{.event.data.id}}'\n---\n- {name: stock, job_id: 1, enabled: false}\n"
	ok(file, "event-trigger apply -f - --dry-run", "created  orders.*  default/report")
	ok(file, "event-trigger apply -f -", "created  orders.*  default/report", "created  stock")
	ok(file, "event-trigger apply -f -", "unchanged  orders.*")
	ok(strings.Replace(file, "100.0", "50.0", 1), "event-trigger apply -f - -o json", `"action": "updated"`, `"action": "unchanged"`)
	for _, form := range []string{"yaml", "json"} {
		ok(ok("", "event-trigger get 1 -o "+form), "event-trigger apply -f -", "unchanged")
	}
	ok("", "event-trigger get 1", "default/report (1)", "event.data.amount > 50.0")
	ok("", "event-trigger list --job default/report", "orders.*", "stock", "no")
	ok("", "event-trigger list -g default -o yaml", "name: stock")
	run(ExitFailed, "name: a\njob: default/report\nfilter: (\nparam: '{{'\n", []string{"event-trigger", "apply", "-f", "-"}, "filter: line 1", "param: line 1", "refused")
	run(ExitFailed, "name: a\njob: default/nothing\n", []string{"event-trigger", "apply", "-f", "-"}, "there is no such job")
	run(ExitFailed, "name: a\n", []string{"event-trigger", "apply", "-f", "-"}, "needs a name and a job")
	run(ExitUsage, "", []string{"event-trigger", "get", "x"}, "is not the id")

	send := []string{"event", "send", "orders.created", "-d", `{"id": 7, "amount": 120}`, "--key", "order-7"}
	first := run(ExitDone, "", send, "fired", "trigger 1 (orders.*)", "job 1")
	if again := run(ExitDone, "", send, "sent before"); again != first {
		t.Errorf("sent again: %s, first: %s", again, first)
	}
	id, _, _ := strings.Cut(first, "\n")
	ok("", "event get "+id, "orders.created", "order-7", "fired", `{"id":7,"amount":120}`)
	ok("", "event get "+id+" -o json", `"outcome": "fired"`)
	ok(`{"amount": 1}`, "event send orders.created -f -", "filtered", "its filter said false")
	ok("", "event send stock -o yaml", "outcome: disabled")
	ok("", "event list --name orders.> --since 1h", "orders.created", "rest")
	ok("", "event list -n 1 -o json", `"name": "stock"`)
	run(ExitUsage, "", []string{"event", "send", "a", "-d", "text"}, "not JSON")
	run(ExitUsage, "", []string{"event", "send", "a", "-d", "1", "-f", "x"}, "can't be used together")
	run(ExitUsage, "", []string{"event", "get", "x"}, "is not the id")
	run(ExitFailed, "", []string{"event", "send", "a..b"}, "name: must be")
	ok("", "event-trigger delete 1 2", "1 deleted", "2 deleted")

	ok("", "dead-letter list --kind event", "is not JSON", "belfry.v1.event.a")
	ok("", "dead-letter list --kind event --group a", "is not JSON")
	if out := ok("", "dead-letter list -g b -o json", "[]"); strings.Contains(out, "is not JSON") {
		t.Errorf("the dead letters of another group are listed: %s", out)
	}
	ok("", "dead-letter get 7", "header X-One", "{")
	ok("", "dead-letter get 7 -o yaml", "seq: 7")
	ok("", "dead-letter replay 7", "7 replayed")
	run(ExitFailed, "", []string{"dead-letter", "replay", "7", "9"}, "7 replayed", "there is no such dead letter")
	ok("", "dead-letter delete 7", "7 deleted")
	run(ExitFailed, "", []string{"dead-letter", "get", "7"}, "there is no such dead letter")
	ok("", "dead-letter list -o json", "[]")
}
