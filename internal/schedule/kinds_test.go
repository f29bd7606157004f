package schedule

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/internal/domain"
)

func instant(t testing.TB, s string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return v.UTC()
}

func mustCompile(t testing.TB, s domain.Schedule, o Options) *Schedule {
	t.Helper()
	c, err := Compile(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	second = domain.Duration(time.Second)
	minute = 60 * second
	hour   = 60 * minute
)

func TestKinds(t *testing.T) {
	start := domain.AtPtr(instant(t, "2026-01-01T00:00:00.250Z"))
	end := domain.AtPtr(instant(t, "2026-01-01T00:00:03.250Z"))
	created := Options{CreatedAt: instant(t, "2026-01-01T00:00:00.1239Z")}
	tests := []struct {
		name string
		in   domain.Schedule
		o    Options
		from string
		want []string
	}{
		{"none", domain.Schedule{Kind: "none"}, created, "2026-01-01T00:00:00Z", []string{"never"}},
		{"fixed_delay", domain.Schedule{Kind: "fixed_delay", Delay: minute}, created, "2026-01-01T00:00:00Z", []string{"never"}},
		{"once, ahead", domain.Schedule{Kind: "once", At: start}, created, "2026-01-01T00:00:00Z", []string{"2026-01-01T00:00:00.250Z", "never"}},
		{"once, past", domain.Schedule{Kind: "once", At: start}, created, "2026-01-01T00:00:01Z", []string{"never"}},
		{"once, outside its window", domain.Schedule{Kind: "once", At: start, StartAt: end}, created, "2025-01-01T00:00:00Z", []string{"never"}},
		{"rate from creation", domain.Schedule{Kind: "fixed_rate", Every: 1500 * second / 1000}, created, "2026-01-01T00:00:00.123Z",
			[]string{"2026-01-01T00:00:01.623Z", "2026-01-01T00:00:03.123Z"}},
		{"rate before creation", domain.Schedule{Kind: "fixed_rate", Every: second}, created, "2025-01-01T00:00:00Z", []string{"2026-01-01T00:00:00.123Z"}},
		{"rate within a millisecond", domain.Schedule{Kind: "fixed_rate", Every: second}, created, "2026-01-01T00:00:01.1235Z", []string{"2026-01-01T00:00:02.123Z"}},
		{"rate in a window", domain.Schedule{Kind: "fixed_rate", Every: second, StartAt: start, EndAt: end}, created, "2025-01-01T00:00:00Z",
			[]string{"2026-01-01T00:00:00.250Z", "2026-01-01T00:00:01.250Z", "2026-01-01T00:00:02.250Z", "2026-01-01T00:00:03.250Z", "never"}},
		{"rate over centuries", domain.Schedule{Kind: "fixed_rate", Every: 7 * 24 * hour}, Options{}, "2199-12-20T00:00:00Z", []string{"2199-12-26T00:00:00.000Z", "never"}},
		{"cron in a window, both ends in it", domain.Schedule{Kind: "cron", Expr: "* * * * * *",
			StartAt: domain.AtPtr(instant(t, "2026-01-01T00:00:00Z")), EndAt: domain.AtPtr(instant(t, "2026-01-01T00:00:01Z"))}, created, "2025-01-01T00:00:00Z",
			[]string{"2026-01-01T00:00:00.000Z", "2026-01-01T00:00:01.000Z", "never"}},
		{"cron past its window", domain.Schedule{Kind: "cron", Expr: "* * * * * *", EndAt: end}, created, "2026-01-01T00:00:03Z", []string{"never"}},
		{"before 1970", domain.Schedule{Kind: "cron", Expr: "0 0 1 1 *"}, created, "1066-10-14T00:00:00Z", []string{"1970-01-01T00:00:00.000Z"}},
		{"before 1970, east", domain.Schedule{Kind: "cron", Expr: "0 0 * * *", TimeZone: "Asia/Tokyo"}, created, "1066-10-14T00:00:00Z", []string{"1970-01-01T15:00:00.000Z"}},
		{"before 1970, west", domain.Schedule{Kind: "cron", Expr: "0 0 * * *", TimeZone: "America/New_York"}, created, "1066-10-14T00:00:00Z", []string{"1970-01-01T05:00:00.000Z"}},
		{"1970 in the west begins in 1969", domain.Schedule{Kind: "cron", Expr: "0 * * * *", TimeZone: "America/New_York"}, created, "1066-10-14T00:00:00Z", []string{"1970-01-01T05:00:00.000Z"}},
		{"after 2199", domain.Schedule{Kind: "cron", Expr: "* * * * *"}, created, "9999-01-01T00:00:00Z", []string{"never"}},
	}
	for _, test := range tests {
		s := mustCompile(t, test.in, test.o)
		at := instant(t, test.from)
		for _, want := range test.want {
			next, ok := s.Next(at)
			got := "never"
			if ok {
				got = domain.At(next).String()
			}
			if got != want {
				t.Errorf("%s: got %s, want %s", test.name, got, want)
				break
			}
			at = next
		}
	}
}

func TestAccessors(t *testing.T) {
	start, end := instant(t, "2026-01-01T00:00:00Z"), instant(t, "2026-01-02T00:00:00Z")
	s := mustCompile(t, domain.Schedule{Kind: "fixed_delay", Delay: minute, StartAt: domain.AtPtr(start), EndAt: domain.AtPtr(end)}, Options{})
	from, to := s.Window()
	if s.Kind() != domain.ScheduleFixedDelay || s.Delay() != time.Minute || !from.Equal(start) || !to.Equal(end) || s.Zone() != time.UTC {
		t.Errorf("kind %s, delay %s, window %s to %s, zone %s", s.Kind(), s.Delay(), from, to, s.Zone())
	}
	for at, want := range map[time.Time]bool{
		start: true, end: true, start.Add(-1): false, end.Add(1): false,
	} {
		if s.InWindow(at) != want {
			t.Errorf("InWindow(%s) is %v", at, !want)
		}
	}
}

func TestDue(t *testing.T) {
	s := mustCompile(t, domain.Schedule{Kind: "cron", Expr: "* * * * *", Jitter: 10 * second}, Options{})
	fire := instant(t, "2026-01-01T00:00:00Z")
	// The value is pinned: another version of the program must compute the same due instant.
	if got := domain.At(s.Due(7, fire)).String(); got != "2026-01-01T00:00:03.172Z" {
		t.Errorf("Due(7) = %s", got)
	}
	var early, late int
	seen := map[time.Duration]bool{}
	for job := range domain.JobID(1000) {
		d := s.Due(job, fire).Sub(fire)
		if d < 0 || d >= 10*time.Second || d%time.Millisecond != 0 {
			t.Fatalf("job %d is delayed by %s", job, d)
		}
		if seen[d] = true; d < 5*time.Second {
			early++
		} else {
			late++
		}
	}
	if early < 400 || late < 400 || len(seen) < 900 {
		t.Errorf("the delays are not spread: %d early, %d late, %d different", early, late, len(seen))
	}
	if got := mustCompile(t, domain.Schedule{Kind: "none"}, Options{}).Due(7, fire); !got.Equal(fire) {
		t.Errorf("without jitter Due moved to %s", got)
	}
}

func TestJitterOfCron(t *testing.T) {
	tests := []struct {
		expr, zone string
		dialect    domain.Dialect
		gap        domain.Duration // the smallest
	}{
		{"* * * * *", "UTC", standard, minute},
		{"*/7 * * * *", "UTC", standard, 4 * minute},
		{"0 2 * * *", "UTC", standard, 24 * hour},
		{"0 2 * * *", "Asia/Shanghai", standard, 24 * hour}, // its last daylight saving time was in 1991
		{"0 2 * * *", "Europe/Berlin", standard, 23 * hour},
		{"0 2 * * 1", "UTC", standard, 7 * 24 * hour},
		{"0 0 1 * *", "UTC", standard, 28 * 24 * hour},
		{"0 0 29 2 *", "UTC", standard, 1461 * 24 * hour},
		{"0 23 * * *", "Pacific/Apia", standard, 24 * hour},
		{"0 23,1 * * *", "UTC", standard, 2 * hour},
		{"30 2,3 * * *", "America/New_York", standard, 30 * minute}, // 02:30 moves to 03:00 in spring
		{"30 1-3 * * *", "America/New_York", standard, hour},
		{"0 59 1,2 * * *", "America/New_York", standard, minute}, // 01:59, then 02:59 at 03:00
		{"0 0 12 ? * 6#3", "UTC", quartz, 28 * 24 * hour},
		{"0 0 12 L * ?", "UTC", quartz, 28 * 24 * hour},
		{"0 0 0 1 1 ? 2030,2033", "UTC", quartz, 1096 * 24 * hour},
	}
	for _, test := range tests {
		in := domain.Schedule{Kind: domain.ScheduleCron, Expr: test.expr, Dialect: test.dialect, TimeZone: test.zone}
		o := Options{CreatedAt: instant(t, "2026-01-01T00:00:00Z")}
		for jitter, want := range map[domain.Duration]bool{test.gap: false, test.gap - second/1000: true} {
			in.Jitter = jitter
			if _, err := Compile(in, o); (err == nil) != want {
				t.Errorf("%q in %s with jitter %s: %v", test.expr, test.zone, jitter.Std(), err)
			}
		}
	}
	never := domain.Schedule{Kind: domain.ScheduleCron, Expr: "0 0 30 2 *", Jitter: 1000 * hour}
	mustCompile(t, never, Options{})
}

// TestGapIsNeverExceeded compares the smallest gap with the gaps between the fire times of Next around changes of the
// clocks.
func TestGapIsNeverExceeded(t *testing.T) {
	var walks []*walk
	for _, nasty := range nastyZones[:6] {
		zone, err := time.LoadLocation(nasty.zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range changes(zone, nasty.years[0]) {
			walks = append(walks, newWalk(zone, change))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		w := walks[rapid.IntRange(0, len(walks)-1).Draw(t, "walk")]
		e := drawExpr(t, w)
		s := compile(t, e.text(), e.dialect, w.zone.String())
		gap := s.cron.smallestGap(w.zone, w.inner)
		fires := w.fires(e)
		for i := 1; i < len(fires); i++ {
			if actual := time.Duration(fires[i]-fires[i-1]) * time.Second; actual < gap {
				t.Fatalf("%q in %s: gap %s before %s, want at least %s", e.text(), w.zone, actual, time.Unix(fires[i], 0).In(w.zone), gap)
			}
		}
	})
}

// PerMinute is the highest number of fire times in a minute. The instants include changes of the clocks.
func TestPerMinute(t *testing.T) {
	cron := func(expr string, dialect domain.Dialect) domain.Schedule {
		return domain.Schedule{Kind: domain.ScheduleCron, Expr: expr, Dialect: dialect}
	}
	every := func(d time.Duration) domain.Schedule {
		return domain.Schedule{Kind: domain.ScheduleFixedRate, Every: domain.Duration(d)}
	}
	for _, c := range []struct {
		name string
		s    domain.Schedule
		want int
	}{
		{"every minute", cron("* * * * *", domain.DialectStandard), 1},
		{"nightly", cron("30 2 * * *", domain.DialectStandard), 1},
		{"every second", cron("* * * * * *", domain.DialectStandard), 60},
		{"every second of one minute", cron("* 30 2 * * *", domain.DialectStandard), 60},
		{"a list", cron("0,7,59 */5 * * * *", domain.DialectStandard), 3},
		{"a step", cron("*/7 * * * * *", domain.DialectStandard), 9},
		{"quartz", cron("0/20 0-30 2 ? * SUN", domain.DialectQuartz), 3},
		{"1 s", every(time.Second), 60},
		{"1.001 s", every(1001 * time.Millisecond), 60},
		{"7 s", every(7 * time.Second), 9},
		{"60 s", every(time.Minute), 1},
		{"61 s", every(61 * time.Second), 1},
		{"a day", every(24 * time.Hour), 1},
	} {
		for _, zone := range []string{"UTC", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu"} {
			c.s.TimeZone = zone
			s, err := Compile(c.s, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if got := s.PerMinute(); got != c.want {
				t.Errorf("%s: PerMinute is %d, not %d", c.name, got, c.want)
			}
			for _, day := range []string{"2026-03-28T12:00:00Z", "2026-04-04T12:00:00Z", "2026-10-03T12:00:00Z", "2026-10-24T12:00:00Z"} {
				if most := mostInAMinute(t, s, day); most > c.want {
					t.Errorf("%s, %s: %d fire times in a minute", c.name, zone, most)
				} else if most < c.want && zone == "UTC" && c.s.Kind != domain.ScheduleCron {
					t.Errorf("%s: at most %d fire times in a minute, and PerMinute is %d", c.name, most, c.want)
				}
			}
		}
	}
	for kind, want := range map[domain.ScheduleKind]int{domain.ScheduleNone: 0, domain.ScheduleOnce: 1} {
		s := domain.Schedule{Kind: kind}
		if kind == domain.ScheduleOnce {
			s.At = domain.AtPtr(time.Unix(1e9, 0))
		}
		compiled, err := Compile(s, Options{})
		if err != nil || compiled.PerMinute() != want {
			t.Errorf("%s: %d, %v", kind, compiled.PerMinute(), err)
		}
	}
	delay, err := Compile(domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(100 * time.Millisecond)}, Options{})
	if err != nil || delay.PerMinute() != 600 {
		t.Errorf("a delay of 100 ms: %d, %v", delay.PerMinute(), err)
	}
}

// mostInAMinute returns the highest number of fire times in a UTC minute of the 24 hours from an instant.
func mostInAMinute(t *testing.T, s *Schedule, from string) (most int) {
	t.Helper()
	start, err := time.Parse(time.RFC3339, from)
	if err != nil {
		t.Fatal(err)
	}
	n, minute := 0, time.Time{}
	for at, ok := s.Next(start.Add(-1)); ok && at.Before(start.Add(24*time.Hour)); at, ok = s.Next(at) {
		if m := at.Truncate(time.Minute); !m.Equal(minute) {
			n, minute = 0, m
		}
		n++
		most = max(most, n)
	}
	return most
}
