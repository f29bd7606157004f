package schedule

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/belfryhq/belfry/internal/domain"
)

// fataler is the common part of testing.TB and rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func compile(t fataler, expr string, dialect domain.Dialect, zone string) *Schedule {
	t.Helper()
	s, err := Compile(domain.Schedule{Kind: domain.ScheduleCron, Expr: expr, Dialect: dialect, TimeZone: zone}, Options{})
	if err != nil {
		t.Fatalf("%s %q: %v", dialect, expr, err)
	}
	return s
}

// TestNext lists, for each expression, the fire times that follow an instant, in local time.
func TestNext(t *testing.T) {
	const std = standard
	tests := []struct {
		name, expr string
		dialect    domain.Dialect
		zone, from string
		want       []string
	}{
		{"every minute", "* * * * *", std, "UTC", "2026-01-01T00:00:30Z", []string{"2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"}},
		{"strictly after", "0 0 * * *", std, "UTC", "2026-01-01T00:00:00Z", []string{"2026-01-02T00:00:00Z"}},
		{"fraction of a second", "* * * * * *", std, "UTC", "2026-01-01T00:00:00.999Z", []string{"2026-01-01T00:00:01Z"}},
		{"seconds", "*/20 59 23 31 12 *", std, "UTC", "2026-12-31T23:59:20Z", []string{"2026-12-31T23:59:40Z", "2027-12-31T23:59:00Z"}},
		{"names", "0 12 * feb Mon-WED", std, "UTC", "2026-02-01T00:00:00Z", []string{"2026-02-02T12:00:00Z", "2026-02-03T12:00:00Z", "2026-02-04T12:00:00Z", "2026-02-09T12:00:00Z"}},
		{"either day", "0 0 13 * 5", std, "UTC", "2026-02-01T00:00:00Z", []string{"2026-02-06T00:00:00Z", "2026-02-13T00:00:00Z", "2026-02-20T00:00:00Z", "2026-02-27T00:00:00Z", "2026-03-06T00:00:00Z", "2026-03-13T00:00:00Z"}},
		{"*/2 counts as a star: both days", "0 0 */2 * 1", std, "UTC", "2026-02-01T00:00:00Z", []string{"2026-02-09T00:00:00Z", "2026-02-23T00:00:00Z"}},
		{"7 is Sunday", "0 0 * * 7", std, "UTC", "2026-02-01T00:00:00Z", []string{"2026-02-08T00:00:00Z"}},
		{"5-7", "0 0 * * 5-7", std, "UTC", "2026-02-01T00:00:00Z", []string{"2026-02-06T00:00:00Z", "2026-02-07T00:00:00Z", "2026-02-08T00:00:00Z", "2026-02-13T00:00:00Z"}},
		{"1-7/2 holds Sunday", "0 0 * * 1-7/2", std, "UTC", "2026-02-01T00:00:00Z", []string{"2026-02-02T00:00:00Z", "2026-02-04T00:00:00Z", "2026-02-06T00:00:00Z", "2026-02-08T00:00:00Z"}},
		{"*/3 of weekdays begins on Sunday", "0 0 * * */3", std, "UTC", "2026-02-01T00:00:00Z", []string{"2026-02-04T00:00:00Z", "2026-02-07T00:00:00Z", "2026-02-08T00:00:00Z"}},
		{"7/2 ends at once", "0 0 * * 7/2", std, "UTC", "2026-02-01T00:00:00Z", []string{"2026-02-08T00:00:00Z", "2026-02-15T00:00:00Z"}},
		{"1/2 does not reach 7", "0 0 * * 1/2", std, "UTC", "2026-02-05T00:00:00Z", []string{"2026-02-06T00:00:00Z", "2026-02-09T00:00:00Z"}},
		{"SAT-SUN", "0 0 * * SAT-SUN", std, "UTC", "2026-02-02T00:00:00Z", []string{"2026-02-07T00:00:00Z", "2026-02-08T00:00:00Z", "2026-02-14T00:00:00Z"}},
		{"leap day", "0 0 29 2 *", std, "UTC", "2096-03-01T00:00:00Z", []string{"2104-02-29T00:00:00Z"}},
		{"@weekly", "@Weekly", std, "UTC", "2026-02-02T00:00:00Z", []string{"2026-02-08T00:00:00Z"}},
		{"30 February", "0 0 30 2 *", std, "UTC", "2026-01-01T00:00:00Z", []string{"never"}},
		{"end of time", "0 0 1 1 *", std, "UTC", "2198-06-01T00:00:00Z", []string{"2199-01-01T00:00:00Z", "never"}},

		{"L", "0 0 12 L * ?", quartz, "UTC", "2028-01-31T12:00:00Z", []string{"2028-02-29T12:00:00Z", "2028-03-31T12:00:00Z"}},
		{"L-3", "0 0 12 L-3 * ?", quartz, "UTC", "2026-01-31T12:00:00Z", []string{"2026-02-25T12:00:00Z", "2026-03-28T12:00:00Z"}},
		{"L-30", "0 0 0 L-30 * ?", quartz, "UTC", "2026-01-02T00:00:00Z", []string{"2026-03-01T00:00:00Z", "2026-05-01T00:00:00Z"}},
		{"LW", "0 0 0 LW * ?", quartz, "UTC", "2026-01-02T00:00:00Z", []string{"2026-01-30T00:00:00Z", "2026-02-27T00:00:00Z", "2026-03-31T00:00:00Z", "2026-04-30T00:00:00Z", "2026-05-29T00:00:00Z"}},
		{"L-3W", "0 0 0 L-3W * ?", quartz, "UTC", "2026-03-01T00:00:00Z", []string{"2026-03-27T00:00:00Z", "2026-04-27T00:00:00Z"}},
		{"15W", "0 0 0 15W * ?", quartz, "UTC", "2026-01-20T00:00:00Z", []string{"2026-02-16T00:00:00Z", "2026-03-16T00:00:00Z", "2026-04-15T00:00:00Z"}},
		{"1W stays in its month", "0 0 0 1W * ?", quartz, "UTC", "2026-07-20T00:00:00Z", []string{"2026-08-03T00:00:00Z", "2026-09-01T00:00:00Z"}},
		{"31W skips short months", "0 0 0 31W * ?", quartz, "UTC", "2026-04-01T00:00:00Z", []string{"2026-05-29T00:00:00Z", "2026-07-31T00:00:00Z"}},
		{"list of specials", "0 0 0 1,LW,15 * ?", quartz, "UTC", "2026-02-01T00:00:00Z", []string{"2026-02-15T00:00:00Z", "2026-02-27T00:00:00Z", "2026-03-01T00:00:00Z"}},
		{"6L", "0 0 0 ? * 6L", quartz, "UTC", "2026-02-01T00:00:00Z", []string{"2026-02-27T00:00:00Z", "2026-03-27T00:00:00Z"}},
		{"friL", "0 0 0 ? * friL", quartz, "UTC", "2026-02-01T00:00:00Z", []string{"2026-02-27T00:00:00Z"}},
		{"6#3", "0 0 0 ? * 6#3", quartz, "UTC", "2026-02-01T00:00:00Z", []string{"2026-02-20T00:00:00Z", "2026-03-20T00:00:00Z"}},
		{"1#5", "0 0 0 ? * 1#5", quartz, "UTC", "2026-02-01T00:00:00Z", []string{"2026-03-29T00:00:00Z", "2026-05-31T00:00:00Z"}},
		{"L is Saturday", "0 0 0 ? * L", quartz, "UTC", "2026-02-01T00:00:00Z", []string{"2026-02-07T00:00:00Z", "2026-02-14T00:00:00Z"}},
		{"2 is Monday", "0 0 0 ? * 2", quartz, "UTC", "2026-02-01T00:00:00Z", []string{"2026-02-02T00:00:00Z"}},
		{"hours wrap", "0 0 22-2 * * ?", quartz, "UTC", "2026-02-01T01:00:00Z", []string{"2026-02-01T02:00:00Z", "2026-02-01T22:00:00Z", "2026-02-01T23:00:00Z", "2026-02-02T00:00:00Z"}},
		{"hours wrap with step", "0 0 21-5/3 * * ?", quartz, "UTC", "2026-02-01T00:00:00Z", []string{"2026-02-01T03:00:00Z", "2026-02-01T21:00:00Z", "2026-02-02T00:00:00Z"}},
		{"weekdays wrap", "0 0 0 ? * FRI-MON", quartz, "UTC", "2026-02-02T00:00:00Z", []string{"2026-02-06T00:00:00Z", "2026-02-07T00:00:00Z", "2026-02-08T00:00:00Z", "2026-02-09T00:00:00Z", "2026-02-13T00:00:00Z"}},
		{"months wrap", "0 0 0 1 NOV-FEB ?", quartz, "UTC", "2026-02-02T00:00:00Z", []string{"2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z", "2027-11-01T00:00:00Z"}},
		{"years", "0 0 0 1 1 ? 2027,2030-2099/50", quartz, "UTC", "2026-02-02T00:00:00Z", []string{"2027-01-01T00:00:00Z", "2030-01-01T00:00:00Z", "2080-01-01T00:00:00Z", "never"}},
		{"no leap year", "0 0 0 29 2 ? 2099", quartz, "UTC", "2026-02-02T00:00:00Z", []string{"never"}},
		{"/15", "0 /15 * * * ?", quartz, "UTC", "2026-02-02T00:20:00Z", []string{"2026-02-02T00:30:00Z", "2026-02-02T00:45:00Z"}},

		{"fixed, in the gap", "30 2 * * *", std, "America/New_York", "2026-03-07T12:00:00-05:00", []string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"}},
		{"fixed, merges in the gap", "0,30 2,3 * * *", std, "America/New_York", "2026-03-07T12:00:00-05:00", []string{"2026-03-08T03:00:00-04:00", "2026-03-08T03:30:00-04:00", "2026-03-09T02:00:00-04:00"}},
		{"fixed, every second in the gap", "* 30 2 * * *", std, "America/New_York", "2026-03-07T12:00:00-05:00", []string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"}},
		{"fixed, repeated hour", "30 1 * * *", std, "America/New_York", "2026-10-31T12:00:00-04:00", []string{"2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"}},
		{"fixed, asked in the second pass", "30 1,2 * * *", std, "America/New_York", "2026-11-01T01:10:00-05:00", []string{"2026-11-01T02:30:00-05:00"}},
		{"elapsed, repeated hour", "30 * * * *", std, "America/New_York", "2026-11-01T00:31:00-04:00", []string{"2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00", "2026-11-01T02:30:00-05:00"}},
		{"elapsed, one value by a range", "30 1-1 * * *", std, "America/New_York", "2026-11-01T00:31:00-04:00", []string{"2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00", "2026-11-02T01:30:00-05:00"}},
		{"elapsed, second pass of a yearly date", "30 1-1 1 11 *", std, "America/New_York", "2026-11-01T01:45:00-04:00", []string{"2026-11-01T01:30:00-05:00", "2027-11-01T01:30:00-04:00"}},
		{"elapsed, half a year ahead in the east", "0 0-0 1 6 *", std, "Europe/Berlin", "2026-01-05T00:00:00Z", []string{"2026-06-01T00:00:00+02:00", "2027-06-01T00:00:00+02:00"}},
		{"elapsed, half a year ahead in the west", "0 0-0 1 6 *", std, "America/New_York", "2026-01-05T00:00:00Z", []string{"2026-06-01T00:00:00-04:00", "2027-06-01T00:00:00-04:00"}},
		{"elapsed, in the gap", "30 2-2 * * *", std, "America/New_York", "2026-03-07T12:00:00-05:00", []string{"2026-03-09T02:30:00-04:00"}},
		{"quartz fixed, in the gap", "0 30 1 * * ?", quartz, "Europe/London", "2026-03-28T12:00:00Z", []string{"2026-03-29T02:00:00+01:00", "2026-03-30T01:30:00+01:00"}},
		{"half an hour", "15 2 * * *", std, "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30", []string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"}},
		{"gap at midnight", "0 0 * * *", std, "America/Sao_Paulo", "2018-11-03T12:00:00-03:00", []string{"2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"}},
		{"skipped date, Samoa", "0 2 * * *", std, "Pacific/Apia", "2011-12-28T12:00:00-10:00", []string{"2011-12-29T02:00:00-10:00", "2011-12-31T02:00:00+14:00"}},
		{"skipped date, its own", "0 2 30 12 *", std, "Pacific/Apia", "2011-12-28T12:00:00-10:00", []string{"2012-12-30T02:00:00+14:00"}},
		{"skipped date, Kwajalein", "0 12 * * *", std, "Pacific/Kwajalein", "1993-08-19T13:00:00-12:00", []string{"1993-08-20T12:00:00-12:00", "1993-08-22T12:00:00+12:00"}},
		{"Ramadan in Morocco", "30 2 * * *", std, "Africa/Casablanca", "2026-03-21T12:00:00Z", []string{"2026-03-22T03:00:00+01:00", "2026-03-23T02:30:00+01:00"}},
		{"last day of a leap year beyond the table", "0 12 * * *", std, "America/New_York", "2048-12-30T12:00:00-05:00", []string{"2048-12-31T12:00:00-05:00", "2049-01-01T12:00:00-05:00"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := compile(t, test.expr, test.dialect, test.zone)
			at, err := time.Parse(time.RFC3339, test.from)
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range test.want {
				next, ok := s.Next(at)
				got := "never"
				if ok {
					got = next.In(s.Zone()).Format(time.RFC3339)
				}
				if got != want {
					t.Fatalf("fire time %d of %q: got %s, want %s", i, test.expr, got, want)
				}
				at = next
			}
		})
	}
}
