package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

const (
	standard = domain.DialectStandard
	quartz   = domain.DialectQuartz
)

// faults returns the field errors of s. It fails the test if the error is not an Invalid error of package domain.
func faults(t *testing.T, s domain.Schedule) []domain.FieldError {
	t.Helper()
	compiled, err := Compile(s, Options{})
	if err == nil {
		return nil
	}
	var e *domain.Error
	if !errors.As(err, &e) || e.Code != domain.Invalid || len(e.Fields) == 0 || compiled != nil {
		t.Fatalf("Compile returned %v, %#v; want no schedule and an Invalid *domain.Error with fields", compiled, err)
	}
	return e.Fields
}

// TestExprErrors pins the texts of errors, because users need their positions and hints.
func TestExprErrors(t *testing.T) {
	tests := []struct {
		dialect domain.Dialect
		expr    string
		want    []string // one text for each message, which must contain it
	}{
		{standard, "0 0 32 * *", []string{"day-of-month 32 is out of range 1-31 in field 3, column 5"}},
		{standard, "60 24 0 13 8", []string{
			"minute 60 is out of range 0-59 in field 1, column 1", "hour 24 is out of range 0-23 in field 2, column 4",
			"day-of-month 0 is out of range 1-31 in field 3, column 7", "month 13 is out of range 1-12 in field 4, column 9",
			"day-of-week 8 is out of range 0-7 in field 5, column 12"}},
		{standard, "  60 * * * * *", []string{"second 60 is out of range 0-59 in field 1, column 3"}},
		{standard, "1,2,61 * * * *", []string{"minute 61 is out of range 0-59 in field 1, column 5"}},
		{standard, "*/0 * * * *", []string{"minute has a step of 0 in field 1, column 3"}},
		{standard, "*/x * * * *", []string{"step that is not a number in field 1, column 3"}},
		{standard, "*/ * * * *", []string{"step that is not a number in field 1, column 3"}},
		{standard, "1/2/3 * * * *", []string{"step that is not a number"}},
		{standard, "1- * * * *", []string{"minute has a range without an end in field 1, column 3"}},
		{standard, "-1 * * * *", []string{"minute has a range without a beginning in field 1, column 1"}},
		{standard, "1-2-3 * * * *", []string{`minute has the invalid value "2-3" in field 1, column 3`}},
		{standard, "/5 * * * *", []string{"minute has nothing before the slash in field 1, column 1; write */"}},
		{standard, ",, * * * *", []string{"minute has an empty list item in field 1, column 1"}},
		{standard, "1, * * * *", []string{"minute has an empty list item in field 1, column 3"}},
		{standard, "+5 * * * *", []string{`minute has the invalid value "+5"`}},
		{standard, "*-5 * * * *", []string{`minute has the invalid value "*"`}},
		{standard, "99999999999999999999 * * * *", []string{"minute 99999999999999999999 is out of range 0-59"}},
		{standard, "*/99999999999999999999 * * * *", []string{"step that is not a number"}},
		{standard, "0 22-2 * * *", []string{"hour 22-2 is a range that ends before it begins in field 2, column 3; write 22-23,0-2"}},
		{quartz, "0 0 0 ? * SUN-FRI/2", []string{"day-of-week has a step after a name in field 6, column 18; Quartz ignores the step; write SUN-FRI without it, or 1-6/2 with it"}},
		{quartz, "0 0 0 1 1,mar/3 ?", []string{"month has a step after a name in field 5, column 14; Quartz ignores the step; write mar without it, or 3/3 with it"}},
		{quartz, "0 0 0 1 JAN-X/3 ?", []string{"month has a step after a name in field 5, column 14; Quartz ignores the step; remove it, or write numbers"}},
		{standard, "0 0 * * FRI-MON", []string{"ends before it begins in field 5, column 9; write FRI-7,0-MON"}},
		{standard, "0 0 * * MONDAY", []string{`day-of-week has the invalid value "MONDAY" in field 5, column 9; use 0-7 or SUN-SAT`}},
		{standard, "0 0 * JANUARY *", []string{"use 1-12 or JAN-DEC"}},
		{standard, "0 0 ? * *", []string{"day-of-month ? is Quartz syntax in field 3, column 5; set dialect to quartz"}},
		{standard, "0 0 L * *", []string{"day-of-month L is Quartz syntax"}},
		{standard, "0 0 15W * *", []string{"day-of-month 15W is Quartz syntax"}},
		{standard, "0 0 * * 6#3", []string{"day-of-week 6#3 is Quartz syntax"}},
		{standard, "0 0 * *", []string{"has 4 fields; write 5 (minute hour"}},
		{standard, "0 0 0 ? * * 2026", []string{"has 7 fields; write 5 (minute hour day-of-month month day-of-week) or 6 (with the second in front); for Quartz expressions set dialect to quartz"}},
		{standard, "@every 5m", []string{"use kind fixed_rate"}},
		{standard, "@reboot", []string{"@reboot is not supported"}},
		{standard, "@fortnightly", []string{`"@fortnightly" is not known; use @hourly`}},
		{standard, "@daily root", []string{"@daily must stand alone; remove everything from column 8 on"}},
		{standard, "TZ=UTC", []string{"put it into time_zone"}},
		{standard, "CRON_TZ=Europe/Berlin 0 0 * * *", []string{"put it into time_zone"}},
		{standard, " tz=UTC 0 0 * * *", []string{"put it into time_zone"}},
		{quartz, "TZ=UTC 0 0 0 * * ?", []string{"put it into time_zone"}},
		{standard, "", []string{"is required for kind cron"}},
		{standard, " \t ", []string{"is required for kind cron"}},
		{standard, "0 0 * * *\n", []string{"character at column 10"}},
		{standard, "0 0 * *\u00a0*", []string{"character at column 8"}},
		{standard, "０ 0 * * *", []string{"character at column 1"}},
		{standard, strings.Repeat("1,", 1<<19), []string{"is 1048576 bytes long; at most 256 are allowed"}},

		{quartz, "0 0 12 * *", []string{"has 5 fields; write 6"}},
		{quartz, "0 0 12 * * *", []string{"day-of-month and day-of-week are both given in field 6, column 12; Quartz does not combine them"}},
		{quartz, "0 0 12 ? * ?", []string{"day-of-month and day-of-week are both ?"}},
		{quartz, "? 0 12 * * ?", []string{`second has the invalid value "?" in field 1, column 1; ? must stand alone`}},
		{quartz, "0 0 12 1,? * ?", []string{`day-of-month has the invalid value "?"`}},
		{quartz, "0 0 12 L-31 * ?", []string{`day-of-month has the invalid value "L-31" in field 4, column 8`}},
		{quartz, "0 0 12 L- * ?", []string{`day-of-month has the invalid value "L-"`}},
		{quartz, "0 0 12 W * ?", []string{`day-of-month has the invalid value "W"`}},
		{quartz, "0 0 12 32W * ?", []string{`day-of-month has the invalid value "32W"`}},
		{quartz, "0 0 12 1-5W * ?", []string{`day-of-month has the invalid value "1-5W"`}},
		{quartz, "0 0 12 ? * 0", []string{"day-of-week 0 is out of range 1-7"}},
		{quartz, "0 0 12 ? * 6#6", []string{`day-of-week has "6" for the week of the month in field 6, column 14`}},
		{quartz, "0 0 12 ? * 6#", []string{"write 1 to 5 after #"}},
		{quartz, "0 0 12 ? * #3", []string{"day-of-week lacks a value in field 6, column 12"}},
		{quartz, "0 0 12 ? * 8L", []string{`day-of-week has the invalid value "8L"`}},
		{quartz, "0 0 12 1 1 ? 1969", []string{"year 1969 is out of range 1970-2099 in field 7, column 14"}},
		{quartz, "0 0 12 1 1 ? 2030-2020", []string{"year 2030-2020 is a range that ends before it begins"}},
		{quartz, "0/61 0 12 1 1 ?", []string{"second has a step of 61, longer than its range"}},
		{quartz, "@daily", []string{"set dialect to standard"}},
	}
	for _, test := range tests {
		got := faults(t, domain.Schedule{Kind: domain.ScheduleCron, Dialect: test.dialect, Expr: test.expr})
		if len(got) != len(test.want) {
			t.Errorf("%s %.60q: %d errors, want %d: %v", test.dialect, test.expr, len(got), len(test.want), got)
			continue
		}
		for i, want := range test.want {
			if got[i].Location != "schedule.expr" || !strings.Contains(got[i].Message, want) {
				t.Errorf("%s %.60q: %v, want %q", test.dialect, test.expr, got[i], want)
			}
		}
	}
}

func TestFieldErrors(t *testing.T) {
	at := func(s string) *domain.Instant {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return domain.AtPtr(v)
	}
	const ms = domain.Duration(time.Millisecond)
	const sec, hour = 1000 * ms, 3600 * 1000 * ms
	tests := []struct {
		name string
		in   domain.Schedule
		want map[string]string
	}{
		{"no kind", domain.Schedule{}, map[string]string{"schedule.kind": "is required"}},
		{"unknown kind", domain.Schedule{Kind: "weekly", Expr: "x"}, map[string]string{"schedule.kind": `"weekly" is not known`}},
		{"foreign fields", domain.Schedule{Kind: "none", Expr: "x", Dialect: "quartz", Every: sec, Delay: sec, At: at("2026-01-01T00:00:00Z")},
			map[string]string{"schedule.expr": "belongs to kind cron", "schedule.dialect": "kind cron", "schedule.every": "kind fixed_rate",
				"schedule.delay": "kind fixed_delay", "schedule.at": "kind once"}},
		{"every with cron", domain.Schedule{Kind: "cron", Expr: "* * * * *", Every: sec}, map[string]string{"schedule.every": "belongs to kind fixed_rate"}},
		{"unknown dialect", domain.Schedule{Kind: "cron", Dialect: "spring", Expr: "x"}, map[string]string{"schedule.dialect": `"spring" is not known`}},
		{"every missing", domain.Schedule{Kind: "fixed_rate"}, map[string]string{"schedule.every": "is required"}},
		{"every too short", domain.Schedule{Kind: "fixed_rate", Every: 999 * ms}, map[string]string{"schedule.every": "between 1s and"}},
		{"every negative", domain.Schedule{Kind: "fixed_rate", Every: -sec}, map[string]string{"schedule.every": "between 1s and"}},
		{"every too long", domain.Schedule{Kind: "fixed_rate", Every: 9000 * hour}, map[string]string{"schedule.every": "between 1s and"}},
		{"every too fine", domain.Schedule{Kind: "fixed_rate", Every: sec + 1}, map[string]string{"schedule.every": "whole milliseconds"}},
		{"delay missing", domain.Schedule{Kind: "fixed_delay"}, map[string]string{"schedule.delay": "is required"}},
		{"delay negative", domain.Schedule{Kind: "fixed_delay", Delay: -ms}, map[string]string{"schedule.delay": "between 1ms and"}},
		{"at missing", domain.Schedule{Kind: "once"}, map[string]string{"schedule.at": "is required"}},
		{"at too early", domain.Schedule{Kind: "once", At: at("1969-12-31T23:59:59Z")}, map[string]string{"schedule.at": "1970 to 2199"}},
		{"at too late", domain.Schedule{Kind: "once", At: at("2200-01-01T00:00:00Z")}, map[string]string{"schedule.at": "1970 to 2199"}},
		{"end before start", domain.Schedule{Kind: "none", StartAt: at("2026-01-01T00:00:01Z"), EndAt: at("2026-01-01T00:00:00Z")},
			map[string]string{"schedule.end_at": "must not be before start_at"}},
		{"start too late", domain.Schedule{Kind: "none", StartAt: at("2200-01-01T00:00:00Z")}, map[string]string{"schedule.start_at": "before the year 2200"}},
		{"jitter negative", domain.Schedule{Kind: "none", Jitter: -ms}, map[string]string{"schedule.jitter": "negative"}},
		{"jitter too fine", domain.Schedule{Kind: "none", Jitter: 1}, map[string]string{"schedule.jitter": "whole milliseconds"}},
		{"jitter of once", domain.Schedule{Kind: "once", At: at("2026-01-01T00:00:00Z"), Jitter: 25 * hour}, map[string]string{"schedule.jitter": "at most 24h"}},
		{"jitter of fixed_rate", domain.Schedule{Kind: "fixed_rate", Every: sec, Jitter: sec}, map[string]string{"schedule.jitter": "smallest gap between fires, which is 1s"}},
		{"jitter of fixed_delay", domain.Schedule{Kind: "fixed_delay", Delay: sec, Jitter: sec}, map[string]string{"schedule.jitter": "which is 1s"}},
		{"everything at once", domain.Schedule{Kind: "cron", Expr: "61 * * * *", TimeZone: "Mars/Olympus", At: at("2026-01-01T00:00:00Z"), Jitter: -1},
			map[string]string{"schedule.expr": "minute 61", "schedule.time_zone": "not a known time zone", "schedule.at": "kind once", "schedule.jitter": "negative"}},
	}
	for _, test := range tests {
		got := faults(t, test.in)
		if len(got) != len(test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
		for _, f := range got {
			if want, ok := test.want[f.Location]; !ok || !strings.Contains(f.Message, want) {
				t.Errorf("%s: got %v, want %v", test.name, f, test.want)
			}
		}
	}
}

func TestZones(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT-8", "EST5EDT", "America/Port-au-Prince", "GMT+0"} {
		if s := compile(t, "* * * * *", standard, name); s.Zone().String() != name {
			t.Errorf("zone %q became %q", name, s.Zone())
		}
	}
	for name, want := range map[string]string{
		"Local": "another zone on every machine", "local": "another zone on every machine",
		"europe/berlin": "did you mean Europe/Berlin?", "America/New York": "did you mean America/New_York?",
		"Shanghai": "did you mean Asia/Shanghai?", "utc": "did you mean UTC?", "AMERICA/port-AU-prince": "not a known time zone",
		"+08:00": "did you mean Etc/GMT-8", "UTC-5": "did you mean Etc/GMT+5", "GMT+99": "not a known time zone",
		"../../etc/passwd": "not a known", "/etc/localtime": "not a known", "Europe/../Europe/Berlin": "not a known",
		"right/Europe/Berlin": "not a known", "posix/Europe/Berlin": "not a known", "posixrules": "not a known",
		"Europe/Berlin\x00": "not a known", " ": "not a known", "Europe/": "not a known", "Ｅurope/Berlin": "not a known",
		strings.Repeat("A/", 1000): "too long",
	} {
		got := faults(t, domain.Schedule{Kind: domain.ScheduleNone, TimeZone: name})
		if len(got) != 1 || got[0].Location != "schedule.time_zone" || !strings.Contains(got[0].Message, want) {
			t.Errorf("zone %.40q: got %v, want %q", name, got, want)
		}
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Compile(domain.Schedule{Kind: domain.ScheduleCron, Expr: "0 0 * * *"}, Options{DefaultZone: berlin})
	if err != nil || s.Zone() != berlin {
		t.Errorf("default zone: %v, %v", s, err)
	}
}
