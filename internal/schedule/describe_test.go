package schedule

import (
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

func TestDescribeCron(t *testing.T) {
	tests := []struct {
		dialect    domain.Dialect
		expr, want string
	}{
		{standard, "0 2 * * *", "At 02:00 every day"},
		{standard, "@daily", "At 00:00 every day"},
		{standard, "@hourly", "Every hour"},
		{standard, "@weekly", "At 00:00 on Sunday"},
		{standard, "@monthly", "At 00:00 on day 1 of every month"},
		{standard, "@yearly", "At 00:00 on 1 January"},
		{standard, "* * * * *", "Every minute"},
		{standard, "* * * * * *", "Every second"},
		{standard, "*/10 * * * * *", "Every 10 seconds"},
		{standard, "30 * * * * *", "At second 30 of every minute"},
		{standard, "*/10 */5 * * * *", "Every 10 seconds of every fifth minute from 0 on"},
		{standard, "5,10 3 * * * *", "At seconds 5 and 10 of minute 3 of every hour"},
		{standard, "*/5 * * * *", "Every 5 minutes"},
		{standard, "5 * * * *", "At minute 5 of every hour"},
		{standard, "*/7 * * * *", "At minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour"},
		{standard, "*/90 * * * *", "Every hour"},
		{standard, "0 */2 * * *", "Every 2 hours"},
		{standard, "5 */2 * * *", "At minute 5 of every second hour from 00 on"},
		{standard, "0 */5 * * *", "At 00:00, 05:00, 10:00, 15:00 and 20:00 every day"},
		{standard, "0 0,6,12,18 * * *", "At 00:00, 06:00, 12:00 and 18:00 every day"},
		{standard, "*/15 9-17 * * 1-5", "Every 15 minutes from 09:00 to 17:45, Monday to Friday"},
		{standard, "0 9-17 * * *", "Every hour from 09:00 to 17:00 every day"},
		{standard, "* 0 * * *", "Every minute from 00:00 to 00:59 every day"},
		{standard, "*/5 0 0 * * *", "Every 5 seconds of minute 0 from 00:00 to 00:00:55 every day"},
		{standard, "* 2 * * *", "Every minute from 02:00 to 02:59 every day"},
		{standard, "*/5 1,3,9 * * *", "Every 5 minutes of the hours 01, 03 and 09 every day"},
		{standard, "3 * 1 * *", "At minute 3 of every hour on day 1 of every month"},
		{standard, "0 9 * * 1,4", "At 09:00 on Monday and Thursday"},
		{standard, "0 9 * * 0,6", "At 09:00 on Saturday and Sunday"},
		{standard, "0 9 * * SAT-SUN", "At 09:00 on Saturday and Sunday"},
		{standard, "0 0 1,15 * *", "At 00:00 on days 1 and 15 of every month"},
		{standard, "0 4 8-14 * *", "At 04:00 on days 8 to 14 of every month"},
		{standard, "0 0 29 2 *", "At 00:00 on 29 February"},
		{standard, "0 0 1 1,7 *", "At 00:00 on day 1 of January and July"},
		{standard, "0 0 * 6-8 1", "At 00:00 on Monday in June to August"},
		{standard, "0 0 13 * 5", "At 00:00 on day 13 of every month or on Friday"},
		{standard, "0 0 1-31 * 5", "At 00:00 every day"},
		{standard, "0 0 */2 * 1", "At 00:00 on every second day from day 1 on of every month, only on Monday"},
		{quartz, "0 0 12 L * ?", "At 12:00 on the last day of every month"},
		{quartz, "0 0 12 L-1 * ?", "At 12:00 on the second-to-last day of every month"},
		{quartz, "0 0 0 LW 3 ?", "At 00:00 on the last working day of March"},
		{quartz, "0 0 0 L-3W * ?", "At 00:00 on the working day nearest to the fourth-to-last day of every month"},
		{quartz, "0 0 0 15W * ?", "At 00:00 on the working day nearest to day 15 of every month"},
		{quartz, "0 0 0 ? * 6L", "At 00:00 on the last Friday of the month"},
		{quartz, "0 0 0 ? * 6#3", "At 00:00 on the third Friday of the month"},
		{quartz, "0 0/15 22-2 * * ?", "Every 15 minutes from 22:00 to 02:45 every day"},
		{quartz, "15 30 8 ? * FRI-MON 2027", "At 08:30:15, Friday to Monday in 2027"},
		{quartz, "0 0 0 1 1 ? 2026-2030", "At 00:00 on 1 January from 2026 to 2030"},
		{quartz, "0 0 0 1 1 ? */2", "At 00:00 on 1 January in 65 years from 1970 to 2098"},
	}
	for _, test := range tests {
		if got := compile(t, test.expr, test.dialect, "Asia/Shanghai").Describe(); got != test.want+", Asia/Shanghai" {
			t.Errorf("%s %q: %q, want %q", test.dialect, test.expr, got, test.want)
		}
	}
}

func TestDescribeKinds(t *testing.T) {
	at := domain.AtPtr(instant(t, "2026-03-29T01:30:00Z"))
	tests := []struct {
		in   domain.Schedule
		want string
	}{
		{domain.Schedule{Kind: "none"}, "Only by hand, API, event or parent"},
		{domain.Schedule{Kind: "fixed_rate", Every: 90 * second}, "Every 90 seconds"},
		{domain.Schedule{Kind: "fixed_rate", Every: hour}, "Every hour"},
		{domain.Schedule{Kind: "fixed_rate", Every: 24 * hour}, "Every 24 hours"},
		{domain.Schedule{Kind: "fixed_rate", Every: 1500 * second / 1000}, "Every 1.5 seconds"},
		{domain.Schedule{Kind: "fixed_delay", Delay: minute}, "1 minute after the end of the previous run"},
		{domain.Schedule{Kind: "once", At: at, TimeZone: "Europe/Berlin"}, "Once, at 2026-03-29 03:30:00, Europe/Berlin"},
		{domain.Schedule{Kind: "fixed_rate", Every: minute, StartAt: at, Jitter: 5 * second}, "Every minute, from 2026-03-29 01:30:00Z on, delayed by up to 5 seconds"},
		{domain.Schedule{Kind: "fixed_rate", Every: minute, EndAt: at, TimeZone: "Europe/Berlin"}, "Every minute, until 2026-03-29 03:30:00+02:00"},
		{domain.Schedule{Kind: "fixed_rate", Every: minute, StartAt: at, EndAt: at}, "Every minute, from 2026-03-29 01:30:00Z until 2026-03-29 01:30:00Z"},
	}
	for _, test := range tests {
		if got := mustCompile(t, test.in, Options{}).Describe(); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

func TestNote(t *testing.T) {
	now := instant(t, "2026-06-01T00:00:00Z")
	past, future := domain.AtPtr(instant(t, "2026-01-01T00:00:00Z")), domain.AtPtr(instant(t, "2026-06-01T12:00:00Z"))
	tests := []struct {
		in   domain.Schedule
		want string
	}{
		{domain.Schedule{Kind: "none"}, ""},
		{domain.Schedule{Kind: "none", EndAt: past}, ""},
		{domain.Schedule{Kind: "cron", Expr: "* * * * *"}, ""},
		{domain.Schedule{Kind: "fixed_delay", Delay: minute}, ""},
		{domain.Schedule{Kind: "once", At: future}, ""},
		{domain.Schedule{Kind: "cron", Expr: "0 0 30 2 *"}, "No next fire time: no date ever matches the expression."},
		{domain.Schedule{Kind: "cron", Expr: "* * * * *", EndAt: past}, "No next fire time: the schedule ended at 2026-01-01T00:00:00.000Z."},
		{domain.Schedule{Kind: "fixed_rate", Every: minute, EndAt: past}, "No next fire time: the schedule ended at 2026-01-01T00:00:00.000Z."},
		{domain.Schedule{Kind: "fixed_delay", Delay: minute, EndAt: past}, "No next fire time: the schedule ended at 2026-01-01T00:00:00.000Z."},
		{domain.Schedule{Kind: "cron", Expr: "0 18 * * *", EndAt: future}, "No next fire time: the next one, 2026-06-01T18:00:00.000Z, would lie past end_at."},
		{domain.Schedule{Kind: "cron", Dialect: "quartz", Expr: "0 0 0 1 1 ? 2026"}, "No next fire time: the last one has passed."},
		{domain.Schedule{Kind: "once", At: past}, "No next fire time: it fires once, and 2026-01-01T00:00:00.000Z has passed."},
		{domain.Schedule{Kind: "once", At: future, EndAt: past}, "No next fire time: at lies outside start_at and end_at."},
	}
	for _, test := range tests {
		if got := mustCompile(t, test.in, Options{}).Note(now); got != test.want {
			t.Errorf("%+v: %q, want %q", test.in, got, test.want)
		}
		chinese := mustCompile(t, test.in, Options{}).NoteIn(explain.Chinese, now)
		if (chinese == "") != (test.want == "") || chinese != "" && !strings.HasPrefix(chinese, "没有下一个触发时间：") {
			t.Errorf("%+v in Chinese: %q", test.in, chinese)
		}
	}
}
