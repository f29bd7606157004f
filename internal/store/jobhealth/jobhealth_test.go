package jobhealth

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

func TestCodesAreWithinFivePercent(t *testing.T) {
	for d := time.Duration(0); d < 20*24*time.Hour; d = d + d/7 + 100*time.Microsecond {
		got, want := float64(Milliseconds(Code(d))), float64(d)/float64(time.Millisecond)
		if got < want*0.95-1 || got > want*1.05+1 {
			t.Fatalf("%s is shown as %v ms", d, got)
		}
	}
	if Code(90*24*time.Hour) != 255 {
		t.Error("the code of a very long duration is not the last one")
	}
}

func TestQuantile(t *testing.T) {
	twenty := []byte{20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}
	for _, c := range []struct {
		durations []byte
		q         float64
		want      byte
	}{
		{twenty, 0.5, 10}, {twenty, 0.95, 19}, {twenty[1:], 0.95, 19}, {[]byte{7}, 0.5, 7}, {[]byte{7}, 0.95, 7}, {[]byte{9, 3}, 0.5, 3}, {[]byte{9, 3}, 0.95, 9},
	} {
		if got := Quantile(c.durations, c.q); got != c.want {
			t.Errorf("the %v-quantile of %v is %d, want %d", c.q, c.durations, got, c.want)
		}
	}
}

func TestHoursForgetAfterADay(t *testing.T) {
	h := Hours{Hour: 1000}.Add(1000, 5).Add(1001, 7).Add(1004, 40_000)
	for _, c := range []struct {
		hour int32
		want int
	}{{1004, 40_012}, {1023, 40_012}, {1024, 40_007}, {1025, 40_000}, {1027, 40_000}, {1028, 0}, {9999, 0}} {
		if got := h.Day(c.hour); got != c.want {
			t.Errorf("at hour %d: %d runs, want %d", c.hour, got, c.want)
		}
	}
	h = h.Add(1005, 1)
	if got := h.Day(1005); got != 1+32_767+12 {
		t.Errorf("an hour later: %d runs", got)
	}
	if got := h.Add(1003, 2).Day(1005); got != 3+32_767+12 {
		t.Errorf("after a step back: %d runs", got)
	}
	if h = h.Add(5000, 1); h.Day(5000) != 1 || len(h.Past) != 46 {
		t.Errorf("after a long time: %d runs, %d bytes", h.Day(5000), len(h.Past))
	}
}

// The order of failures does not matter, and a failure that is older than the newest success does not make a job failing.
func TestFailuresCountFromTheNewestSuccess(t *testing.T) {
	begin := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	run := func(second int) Run {
		at := begin.Add(time.Duration(second) * time.Second)
		return Run{ID: domain.NewRunID(at), At: at.Add(time.Second)}
	}
	success, old, first, second := run(10), run(5), run(11), run(12)
	for _, failed := range [][]Run{{old, first, second}, {second, first, old}} {
		f := Failures{}.Add(success.ID, failed[:2], 1).Add(success.ID, failed[2:], 1)
		if !f.Failing || f.Streak != 2 || !f.Since.Equal(first.At) || f.Newest != second || f.Hours.Day(1) != 3 {
			t.Errorf("%+v", f)
		}
	}
	if f := (Failures{}).Add(success.ID, []Run{old}, 1); f.Failing || f.Streak != 0 || f.Newest != old {
		t.Errorf("after an old failure: %+v", f)
	}
	shard := success
	shard.ID[15]++
	if f := (Failures{Streak: 2, Since: begin, Recovered: success.ID}).Add(success.ID, []Run{shard}, 1); !f.Failing || f.Streak != 3 || !f.Since.Equal(begin) {
		t.Errorf("although a shard of the newest broadcast failed too, the streak has ended: %+v", f)
	}
	if f := (Failures{Streak: 2, Since: begin, Recovered: run(9).ID}).Add(success.ID, []Run{shard}, 1); !f.Failing || f.Streak != 1 {
		t.Errorf("two successes have not ended the streak: %+v", f)
	}
	if f := (Failures{Streak: 2, Since: begin, Recovered: success.ID}).Add(success.ID, []Run{first}, 1); !f.Failing || f.Streak != 1 || !f.Since.Equal(first.At) {
		t.Errorf("after a success, the old streak continues: %+v", f)
	}
}
