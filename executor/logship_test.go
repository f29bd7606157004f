package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfryhq/belfry/executor/wire"
)

// shipped is a stream that accepts log lines or fails.
type shipped struct {
	mu    sync.Mutex
	away  bool
	fails int
	lines []wire.LogLine
	sizes []int
}

func (s *shipped) ready() (bool, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.away, 1 << 20
}

func (s *shipped) publish(_ context.Context, _ attemptKey, lines []wire.LogLine) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away || s.fails > 0 {
		s.fails--
		return errors.New("away")
	}
	s.lines = append(s.lines, lines...)
	s.sizes = append(s.sizes, len(wire.Encode(wire.Logs{Lines: lines})))
	return nil
}

// ship runs a shipper in a synctest bubble. fill adds lines.
func ship(t *testing.T, stream *shipped, fill func(add func(text string), come func())) {
	synctest.Test(t, func(t *testing.T) {
		s := newLogShipper(quietLogger())
		s.ready, s.publish = stream.ready, stream.publish
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.run(ctx) })
		a := &attemptLog{key: attemptKey{"r", 1}}
		n := int64(0)
		fill(func(text string) {
			n++
			s.add(a, wire.LogLine{N: n, Level: "info", Text: text})
		}, func() {
			stream.mu.Lock()
			stream.away = false
			stream.mu.Unlock()
		})
		s.end(a)
		s.awaitSent(ctx)
		if s.bytes != 0 || a.bytes != 0 || s.active != 0 {
			t.Errorf("%d bytes, %d of the attempt, %d attempts are left", s.bytes, a.bytes, s.active)
		}
		cancel()
		wg.Wait()
	})
}

func TestLogLinesComeInOrder(t *testing.T) {
	stream := &shipped{fails: 3}
	const lines = 5000
	ship(t, stream, func(add func(string), _ func()) {
		for n := range lines {
			add(fmt.Sprint("line ", n+1))
			if n%700 == 0 {
				time.Sleep(50 * time.Millisecond)
			}
		}
	})
	if len(stream.lines) != lines {
		t.Fatalf("%d lines arrived", len(stream.lines))
	}
	for n, l := range stream.lines {
		if l.N != int64(n+1) || l.Text != fmt.Sprint("line ", n+1) {
			t.Fatalf("line %d is %+v", n+1, l)
		}
	}
}

// A program at rest does not wake up for logs.
func TestNoLogLinesCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := &shipped{}
		ticks := 0
		s := newLogShipper(quietLogger())
		s.publish = stream.publish
		s.ready = func() (bool, int64) { ticks++; return stream.ready() } // run asks at each tick
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.run(ctx) })
		for round := range 3 {
			time.Sleep(time.Hour)
			synctest.Wait()
			if ticks != round {
				t.Errorf("%d ticks after %d lines", ticks, round)
			}
			s.add(&attemptLog{key: attemptKey{"r", round}}, wire.LogLine{N: 1, Level: "info", Text: "line"})
		}
		s.awaitSent(ctx)
		if len(stream.lines) != 3 {
			t.Errorf("%d lines arrived", len(stream.lines))
		}
		cancel()
		wg.Wait()
	})
}

func TestLogLinesGiveWay(t *testing.T) {
	stream := &shipped{away: true}
	const lines = 400
	text := strings.Repeat(`"`, MaxLine) // the worst to encode
	ship(t, stream, func(add func(string), come func()) {
		for range lines {
			add(text)
		}
		time.Sleep(3 * time.Second)
		come()
	})
	first, last := stream.lines[0], stream.lines[len(stream.lines)-1]
	cut := lines - (len(stream.lines) - 1)
	if want := fmt.Sprintf("… %d lines were cut here", cut); first.N != int64(cut) || !strings.HasPrefix(first.Text, want) {
		t.Errorf("the first line is %d %.80s, want number %d and %q", first.N, first.Text, cut, want)
	}
	if last.N != lines || stream.lines[1].N != int64(cut)+1 {
		t.Errorf("lines %d to %d arrived", stream.lines[1].N, last.N)
	}
	for _, size := range stream.sizes {
		if size > wire.MaxLogBytes {
			t.Errorf("a message of %d bytes", size)
		}
	}
}

func TestRunLog(t *testing.T) {
	var lines []Line
	run := newRun(RunInfo{}, func(l Line) { lines = append(lines, l) })
	run.Log().With("a", 1).WithGroup("g").Error("two\nlines", "b", "c d", slog.Group("h", "level", "x"))
	run.Log().Debug("", "level", "mine", "msg", "mine too", "time", 3)
	run.Log().Warn("NUL \x00 and \xff")
	fmt.Fprint(run.Stdout(), "a\r\n\nb")
	_, _ = run.Stderr().Write(bytes.Repeat([]byte("x"), MaxLine+100))
	run.Progress(1, 4)
	run.Progress(2, 4) // too soon
	run.Progress(4, 4)
	if last := run.end(); last != int64(len(lines)) {
		t.Errorf("last line %d of %d", last, len(lines))
	}
	run.Log().Info("too late")
	fmt.Fprintln(run.Stdout(), "too late")
	var got []string
	for n, l := range lines {
		if l.N != int64(n+1) {
			t.Errorf("line %d has number %d", n+1, l.N)
		}
		if len(l.Text) > 100 {
			if len(l.Text) > MaxLine || !strings.HasSuffix(l.Text, cutMark) {
				t.Errorf("a long line has %d bytes", len(l.Text))
			}
			l.Text = "long"
		}
		got = append(got, l.Level+" "+l.Text)
	}
	want := []string{
		"error two", `error lines a=1 g.b="c d" g.h.level=x`, `debug  level=mine msg="mine too" time=3`, "warn NUL \uFFFD and \uFFFD",
		"stdout a", "stdout ", "info progress 1/4 (25%)", "info progress 4/4 (100%)", "stdout b", "stderr long",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if err := run.SetOutput(strings.Repeat("x", MaxOutput+1)); err == nil {
		t.Error("an output beyond the bound is accepted")
	}
}

// paced writes lines as a program's output and returns how long that took. The shipper blocks it if lines cannot be
// sent as fast.
func paced(t *testing.T, stream *shipped, publish func(context.Context) error, lines int, more ...string) (took time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		s := newLogShipper(quietLogger())
		s.ready = stream.ready
		s.publish = func(ctx context.Context, key attemptKey, lines []wire.LogLine) error {
			if err := publish(ctx); err != nil {
				return err
			}
			return stream.publish(ctx, key, lines)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.run(ctx) })
		a := &attempt{engine: &engine{logs: s, log: quietLogger(), now: systemClock(nil)}, key: attemptKey{"r", 1}}
		a.run.init(RunInfo{}, a)
		run := Run{&a.run}
		begin := time.Now()
		for n := range lines {
			fmt.Fprintf(run.Stdout(), "line %d%s\n", n+1, strings.Join(more, ""))
		}
		took = time.Since(begin)
		run.end()
		s.end(a.lines.Load())
		sent, done := context.WithTimeout(ctx, time.Minute)
		s.awaitSent(sent)
		done()
		cancel()
		wg.Wait()
	})
	return took
}

func TestFastOutputIsHeldUpRatherThanCut(t *testing.T) {
	const lines = 100_000
	stream := &shipped{}
	slow := func(context.Context) error { time.Sleep(time.Millisecond); return nil }
	took := paced(t, stream, slow, lines)
	if len(stream.lines) != lines || stream.lines[lines-1].Text != fmt.Sprint("line ", lines) {
		t.Fatalf("%d of %d lines arrived", len(stream.lines), lines)
	}
	if took == 0 {
		t.Error("the program was not blocked")
	}
	long := &shipped{}
	if took := paced(t, long, slow, 100, strings.Repeat("x", MaxLine-20)); len(long.lines) != 100 || took > time.Second {
		t.Errorf("%d long lines arrived after %v", len(long.lines), took)
	}
}

func TestOutputIsNotHeldUpForEver(t *testing.T) {
	const lines = 50_000
	away := &shipped{away: true}
	if took := paced(t, away, func(context.Context) error { return nil }, lines); took != 0 {
		t.Errorf("without NATS, the program was blocked for %v", took)
	}
	deaf := &shipped{}
	took := paced(t, deaf, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, lines)
	if took < logPatience || took > 3*logPatience {
		t.Errorf("with a stream that accepts nothing, the program was blocked for %v", took)
	}
}
