package roster

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

func TestSilent(t *testing.T) {
	const s = time.Second
	now := time.Now()
	heard := func(r *Roster, name, boot string, ago time.Duration) {
		k := key{"g", name}
		if r.voices[k] == nil {
			r.voices[k] = &voices{}
		}
		r.voices[k].hear(boot, now.Add(-ago))
	}
	watching := func(r *Roster, since time.Duration, seq uint64) {
		r.since, r.gap, r.seq, r.heardUpTo = now.Add(-since), now.Add(-since), seq, seq
	}
	for _, tt := range []struct {
		name  string
		given func(*Roster)
		seq   uint64
		want  bool
	}{
		{"never watched", func(*Roster) {}, 0, false},
		{"watched for too short a time", func(r *Roster) { watching(r, 10*s, 9) }, 9, false},
		{"watched for long, never heard", func(r *Roster) { watching(r, 11*s, 9) }, 9, true},
		{"not caught up", func(r *Roster) { watching(r, 11*s, 9) }, 10, false},
		{"heard a moment ago", func(r *Roster) { watching(r, 60*s, 9); heard(r, "a", "boot", 10*s) }, 9, false},
		{"heard long ago", func(r *Roster) { watching(r, 60*s, 9); heard(r, "a", "boot", 11*s) }, 9, true},
		{"another boot was heard", func(r *Roster) { watching(r, 60*s, 9); heard(r, "a", "other", s) }, 9, true},
		{"another instance was heard", func(r *Roster) { watching(r, 60*s, 9); heard(r, "b", "boot", s) }, 9, true},
		{"watched again, with a gap", func(r *Roster) { watching(r, 60*s, 9); r.interrupted(); r.complete(10) }, 10, false},
		{"watched again, without a gap", func(r *Roster) { watching(r, 60*s, 9); r.interrupted(); r.complete(9) }, 9, true},
		{"watched again, the bucket is a new one", func(r *Roster) { watching(r, 60*s, 9); r.interrupted(); r.complete(0) }, 0, false},
		{"watched again, not complete yet", func(r *Roster) { watching(r, 60*s, 9); r.interrupted(); r.received(key{"g", "other"}, "boot", 9) }, 9, false},
		{"watched again, the watch is behind", func(r *Roster) {
			watching(r, 60*s, 9)
			r.interrupted()
			r.received(key{"g", "other"}, "boot", 9)
			r.complete(9)
		}, 10, false},
		{"replaced by another boot, and none was missed", func(r *Roster) {
			watching(r, 60*s, 9)
			heard(r, "a", "boot", 11*s)
			r.received(key{"g", "a"}, "other", 10)
		}, 10, true},
		{"replaced by another boot, and one may have been missed", func(r *Roster) {
			watching(r, 60*s, 9)
			heard(r, "a", "boot", 11*s)
			r.received(key{"g", "a"}, "other", 11)
		}, 11, false},
		{"a goodbye came, and a heartbeat may have been missed", func(r *Roster) {
			watching(r, 60*s, 9)
			heard(r, "a", "boot", 11*s)
			r.gone("g.a", 11)
		}, 11, false},
		{"garbage came, and a heartbeat may have been missed", func(r *Roster) {
			watching(r, 60*s, 9)
			heard(r, "a", "boot", 11*s)
			r.beat("g.a", []byte("garbage"), 11)
		}, 11, false},
		{"an acknowledgement came, which makes the bucket refuse heartbeats", func(r *Roster) {
			watching(r, 60*s, 9)
			heard(r, "a", "boot", 11*s)
			r.beat("g.a", []byte(`{"stream":"BELFRY_RESULTS","seq":1}`), 10)
		}, 10, false},
		{"a heartbeat of any instance may have been missed", func(r *Roster) {
			watching(r, 60*s, 9)
			heard(r, "a", "boot", 11*s)
			r.received(key{"g", "b"}, "other", 11)
		}, 11, false},
		{"an acknowledgement came to the key of another instance", func(r *Roster) {
			watching(r, 60*s, 9)
			heard(r, "a", "boot", 11*s)
			r.beat("g.b", []byte(`{"stream":"BELFRY_RESULTS","seq":1}`), 10)
		}, 10, false},
		{"forgotten among many", func(r *Roster) {
			watching(r, 60*s, 9)
			for i := range bootsMax + 1 {
				heard(r, "a", fmt.Sprint("boot", i), s)
			}
		}, 9, false},
	} {
		r := New(nil, nil)
		tt.given(r)
		if got := r.Silent("g", "a", "boot", tt.seq, now); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
		if got, want := r.CaughtUp(tt.seq), !r.since.IsZero() && r.seq >= tt.seq; got != want {
			t.Errorf("%s: caught up: %t", tt.name, got)
		}
	}
}

// A boot is doubtful if its heartbeat is overdue, and this process may have missed it, or the bucket may have refused it.
func TestDoubtful(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name       string
		heard, gap time.Duration // ago; negative: never
		want       bool
	}{
		{"heard in time", time.Second, 0, false},
		{"overdue, and nothing was missed since", 4 * time.Second, 5 * time.Second, false},
		{"overdue, and a heartbeat may have been missed since", 4 * time.Second, time.Second, true},
		{"never heard", -1, time.Second, true},
	} {
		r := New(nil, nil)
		r.since, r.gap = now.Add(-time.Minute), now.Add(-tt.gap)
		if tt.heard >= 0 {
			r.voices[key{"g", "a"}] = &voices{}
			r.voices[key{"g", "a"}].hear("boot", now.Add(-tt.heard))
		}
		if got := r.Doubtful("g", "a", "boot"); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
		if r.interrupted(); r.Doubtful("g", "a", "boot") {
			t.Errorf("%s: doubtful without a watch", tt.name)
		}
	}
}

// Only the boot that alone has a name may overwrite its key.
func TestSole(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name  string
		heard map[string]time.Duration // ago
		want  string
	}{
		{"none", nil, ""},
		{"one", map[string]time.Duration{"a": time.Hour}, "a"},
		{"one long after another", map[string]time.Duration{"a": time.Hour, "b": time.Hour + silence + time.Second}, "a"},
		{"one soon after another", map[string]time.Duration{"a": time.Hour, "b": time.Hour + silence - time.Second}, ""},
	} {
		v := &voices{}
		for boot, ago := range tt.heard {
			v.hear(boot, now.Add(-ago))
		}
		if got, ok := v.sole(); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %q, %t", tt.name, got, ok)
		}
	}
	if boot, ok := (*voices)(nil).sole(); ok {
		t.Errorf("an unknown name has the boot %q", boot)
	}
}

// The memory per instance name is bounded, and old entries are removed.
func TestVoicesAreBounded(t *testing.T) {
	r := New(nil, nil)
	for i := range 1000 {
		v := &voices{}
		v.hear("boot", time.Now().Add(-silence-time.Second))
		r.voices[key{"g", fmt.Sprint(i)}] = v
	}
	v := &voices{}
	for i := range 1000 {
		v.hear(fmt.Sprint(i), time.Now())
	}
	r.voices[key{"g", "many"}] = v
	if len(v.boots) != bootsMax {
		t.Errorf("%d boots of one name are remembered", len(v.boots))
	}
	if r.sweep(); len(r.voices) != 1 {
		t.Errorf("%d names are remembered", len(r.voices))
	}
}

func TestBeat(t *testing.T) {
	r := New(nil, nil)
	put := func(beat int64, ago time.Duration) {
		r.instances[key{"g", "a"}] = &instance{
			beat: wire.Heartbeat{BootID: "boot", Beat: beat, Handlers: []string{"h"}, Capacity: 1}, load: wire.Load{Capacity: 1}, seen: time.Now().Add(-ago),
		}
	}
	for _, tt := range []struct {
		beat int64
		ago  time.Duration
		ok   bool
	}{{7, 0, true}, {7, beatAge - time.Second, true}, {7, beatAge + time.Millisecond, false}, {0, beatAge + time.Second, true}, {0, wire.LeaseTTL + time.Millisecond, false}} {
		put(tt.beat, tt.ago)
		beat, ok := r.Beat("g", "a", "boot")
		if ok != tt.ok || (ok && beat != tt.beat) {
			t.Errorf("%+v: %d, %t", tt, beat, ok)
		}
		if c := r.Candidates("g", "h"); (len(c) == 1) != tt.ok || (tt.ok && c[0].Beat != tt.beat) {
			t.Errorf("%+v: candidates %+v", tt, c)
		}
	}
	put(7, 0)
	if _, ok := r.Beat("g", "a", "other"); ok {
		t.Error("the heartbeat of another boot is taken")
	}
}
