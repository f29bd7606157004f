package api_test

import (
	"context"
	"slices"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

// letters replaces the stream of dead letters.
type letters struct {
	kept []domain.DeadLetter
	away bool
}

func (l *letters) DeadLetters(_ context.Context, kind, group string, after uint64, limit int) (out []domain.DeadLetter, err error) {
	if l.away {
		return nil, domain.NewError(domain.Unavailable, "NATS is away")
	}
	for _, k := range l.kept {
		if k.Seq > after && (kind == "" || k.Kind == kind) && (group == "" || k.Group == group) && len(out) < limit {
			out = append(out, k)
		}
	}
	return out, nil
}

func (l *letters) CountDeadLetters(context.Context) (n domain.DeadLetterCount, err error) {
	if l.away {
		return n, domain.NewError(domain.Unavailable, "NATS is away")
	}
	n.Letters = uint64(len(l.kept))
	for _, k := range l.kept {
		n.Newest = max(n.Newest, k.Seq)
	}
	return n, nil
}

func (l *letters) DeadLetter(_ context.Context, seq uint64) (domain.DeadLetter, error) {
	i := slices.IndexFunc(l.kept, func(k domain.DeadLetter) bool { return k.Seq == seq })
	if i < 0 {
		return domain.DeadLetter{}, domain.NewError(domain.NotFound, "there is no such dead letter")
	}
	return l.kept[i], nil
}

func (l *letters) Replay(ctx context.Context, seq uint64) (domain.DeadLetter, error) {
	if k, err := l.DeadLetter(ctx, seq); err != nil || k.Kind != "event" {
		return k, domain.NewError(domain.Conflict, "only the beginning of the message was kept")
	}
	return l.Delete(ctx, seq)
}

func (l *letters) Delete(ctx context.Context, seq uint64) (domain.DeadLetter, error) {
	k, err := l.DeadLetter(ctx, seq)
	l.kept = slices.DeleteFunc(l.kept, func(k domain.DeadLetter) bool { return k.Seq == seq })
	return k, err
}

func TestDeadLetters(t *testing.T) {
	w := newWorld(t)
	const path = "/api/v1/dead-letters"
	if empty := w.must(200, "GET", path, ""); len(empty.field("items").([]any)) != 0 {
		t.Errorf("got %s", empty.body)
	}
	for seq, kind := range []string{"result", "event", "event"} {
		w.letters.kept = append(w.letters.kept, domain.DeadLetter{Seq: uint64(seq + 1), Kind: kind, Group: []string{"g", "a", "b"}[seq], Error: "why", Data: "secret", DataBase64: []byte("secret")})
	}
	if got := w.must(200, "GET", path+"/2", ""); got.field("data") != "secret" || got.field("data_base64") != "c2VjcmV0" {
		t.Errorf("got %s", got.body)
	}
	page := w.must(200, "GET", path+"?limit=1&kind=event", "")
	if page.field("items.0.seq") != 2.0 {
		t.Errorf("got %s", page.body)
	}
	if next := w.must(200, "GET", path+"?kind=event&cursor="+page.field("next_cursor").(string), ""); next.field("items.0.seq") != 3.0 || next.field("next_cursor") != "" {
		t.Errorf("got %s", next.body)
	}
	if got := w.must(200, "GET", path+"?kind=event&group=b", ""); len(got.field("items").([]any)) != 1 || got.field("items.0.seq") != 3.0 {
		t.Errorf("got %s", got.body)
	}
	w.must(202, "POST", path+"/2/replay", "")
	w.must(204, "DELETE", path+"/3", "")
	w.must(409, "POST", path+"/1/replay", "")
	w.must(404, "GET", path+"/2", "")
	w.must(404, "DELETE", path+"/2", "")
	for bad, location := range map[string]string{path + "/x": "seq", path + "/0": "seq", path + "?kind=x": "kind", path + "?group=*": "group", path + "?cursor=x": "cursor", path + "?limit=0": "limit"} {
		if a := w.must(422, "GET", bad, ""); !slices.Equal(a.locations(), []string{location}) {
			t.Errorf("%s: %s", bad, a.body)
		}
	}
	log := w.must(200, "GET", "/api/v1/audit?limit=2", "")
	if log.field("items.0.action") != "dead-letter.delete" || log.field("items.1.action") != "dead-letter.replay" || log.field("items.1.object") != "dead-letter/2" || log.field("items.1.before.data") != "" {
		t.Errorf("the audit log has %s", log.body)
	}
	w.must(201, "POST", "/api/v1/users", `{"username":"op","password":"long enough","role":"operator","groups":["default"]}`)
	op := w.logIn("op", "long enough")
	for _, r := range [][2]string{{"GET", path}, {"GET", path + "/1"}, {"POST", path + "/1/replay"}, {"DELETE", path + "/1"}} {
		if a := w.do(op, r[0], r[1], ""); a.status != 403 {
			t.Errorf("an operator's %s %s: %d", r[0], r[1], a.status)
		}
	}
	w.letters.away = true
	w.must(503, "GET", path, "")
}
