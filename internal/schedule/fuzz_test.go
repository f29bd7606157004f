package schedule

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// FuzzParse feeds any text to both dialects. Each text must be refused with a reason, or have fire times that increase
// and that do not depend on the instant from which the search starts.
func FuzzParse(f *testing.F) {
	for _, expr := range []string{
		"* * * * *", "*/0 * * * *", "1- * * * *", ",, * * * *", "0 0 30 2 *", "0 0 29 2 ? 2099", "@every 1s", "@daily",
		"TZ=UTC", "CRON_TZ=UTC * * * * *", "0 0 12 L-3W * ?", "0 0 22-2/3 ? NOV-FEB 6#3,2L 2026/7", "59 59 23 31 12 ? 2099",
		"0-59/59 0 0 1 1 0-7", "* 30 2 * * *", "30 1,2 * * *", "0 0 31W 2 ?", "\x00", "０ 0 * * *", "9999999999999999999 * * * *",
	} {
		f.Add(expr, false, int64(1774746000), uint8(0))
		f.Add(expr, true, int64(-1), uint8(1))
	}
	zones := []string{"UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Europe/Dublin", "Asia/Kathmandu"}
	f.Fuzz(func(t *testing.T, expr string, isQuartz bool, from int64, zone uint8) {
		in := domain.Schedule{
			Kind: domain.ScheduleCron, Expr: expr, Dialect: standard, TimeZone: zones[int(zone)%len(zones)],
			Jitter: domain.Duration(zone) * second,
		}
		if isQuartz {
			in.Dialect = quartz
		}
		faults(t, in)
		in.Jitter = 0
		if faults(t, in) != nil {
			return
		}
		s := mustCompile(t, in, Options{})
		if s.Describe() == "" || s.DescribeChinese() == "" {
			t.Errorf("%q has no description", expr)
		}
		at := time.Unix(from, 0)
		s.Note(at)
		for range 20 {
			next, ok := s.Next(at)
			if !ok {
				return
			}
			if !next.After(at) || next.Nanosecond() != 0 || next.Year() < minYear || next.Year() > maxYear+1 {
				t.Fatalf("%q: after %s comes %s", expr, at, next)
			}
			if next.Sub(at) > 2*time.Second {
				middle := at.Add(next.Sub(at) / 2)
				for _, from := range []time.Time{middle, next.Add(-time.Second), next.Add(-1)} {
					if again, ok := s.Next(from); !ok || !again.Equal(next) {
						t.Fatalf("%q: after %s comes %s, but after %s comes %s", expr, at, next, from, again)
					}
				}
			}
			at = next
		}
	})
}

// TestWorstCases runs the longest possible searches, which must end. BenchmarkNext measures their time.
func TestWorstCases(t *testing.T) {
	for _, c := range worstCases {
		s := compile(t, c.expr, c.dialect, "America/New_York")
		if next, ok := s.Next(time.Unix(0, 0)); ok != (c.year > 0) || ok && next.Year() != c.year {
			t.Errorf("%q fires at %s", c.expr, next)
		}
	}
}

var worstCases = []struct {
	name, expr string
	dialect    domain.Dialect
	year       int // of the first fire time after 1970; 0 if there is none
}{
	{"february30", "0 0 30 2 *", standard, 0},
	{"february30elapsed", "* * 30 2 *", standard, 0},
	{"shortMonths", "* * * 31 2,4,6,9,11 *", standard, 0},
	{"leapDay2099", "0 0 0 29 2 ? 2099", quartz, 0},
	{"fifthLast", "* * * ? 2 1#5,2#5 2029-2099", quartz, 2032},
}

func BenchmarkNext(b *testing.B) {
	cases := append(worstCases[:len(worstCases):len(worstCases)], []struct {
		name, expr string
		dialect    domain.Dialect
		year       int
	}{
		{"everySecond", "* * * * * *", standard, 1970},
		{"everyMinute", "* * * * *", standard, 1970},
		{"daily", "0 2 * * *", standard, 1970},
		{"yearly", "0 0 1 1 *", standard, 1971},
		{"yearlyElapsed", "0 */12 1 1 *", standard, 1970},
		{"lastWorkingDay", "0 0 18 LW * ?", quartz, 1970},
	}...)
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			s := compile(b, c.expr, c.dialect, "America/New_York")
			begin := time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)
			at := begin
			for b.Loop() {
				next, ok := s.Next(at)
				if at = next; !ok || next.Year() > 2100 {
					at = begin
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	for name, jitter := range map[string]domain.Duration{"plain": 0, "jitter": 5 * second} {
		b.Run(name, func(b *testing.B) {
			in := domain.Schedule{Kind: domain.ScheduleCron, Expr: "*/15 9-17 * * 1-5", TimeZone: "Europe/Berlin", Jitter: jitter}
			for b.Loop() {
				if _, err := Compile(in, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
