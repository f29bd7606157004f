package schedule

import (
	"testing"

	"github.com/belfryhq/belfry/internal/domain"
)

func TestDescribeCronInChinese(t *testing.T) {
	tests := []struct {
		dialect    domain.Dialect
		expr, want string
	}{
		{standard, "0 2 * * *", "每天 02:00"},
		{standard, "@daily", "每天 00:00"},
		{standard, "@hourly", "每小时"},
		{standard, "@weekly", "每周日 00:00"},
		{standard, "@monthly", "每月 1 日 00:00"},
		{standard, "@yearly", "1 月 1 日 00:00"},
		{standard, "* * * * *", "每分钟"},
		{standard, "* * * * * *", "每秒"},
		{standard, "*/10 * * * * *", "每 10 秒"},
		{standard, "30 * * * * *", "每分钟的第 30 秒"},
		{standard, "*/10 */5 * * * *", "每小时从第 0 分起每逢第 5 分钟内每 10 秒"},
		{standard, "5,10 3 * * * *", "每小时的第 3 分的第 5、10 秒"},
		{standard, "*/5 * * * *", "每 5 分钟"},
		{standard, "5 * * * *", "每小时的第 5 分"},
		{standard, "*/7 * * * *", "每小时的第 0、7、14、21、28、35、42、49、56 分"},
		{standard, "*/90 * * * *", "每小时"},
		{standard, "0 */2 * * *", "每 2 小时"},
		{standard, "5 */2 * * *", "从 00 点起每 2 小时的第 5 分"},
		{standard, "0 */5 * * *", "每天 00:00、05:00、10:00、15:00、20:00"},
		{standard, "0 0,6,12,18 * * *", "每天 00:00、06:00、12:00、18:00"},
		{standard, "*/15 9-17 * * 1-5", "每周一至周五 09:00 至 17:45，每 15 分钟"},
		{standard, "0 9-17 * * *", "每天 09:00 至 17:00，每小时"},
		{standard, "* 0 * * *", "每天 00:00 至 00:59，每分钟"},
		{standard, "*/5 0 0 * * *", "每天 00:00 至 00:00:55，第 0 分内每 5 秒"},
		{standard, "* 2 * * *", "每天 02:00 至 02:59，每分钟"},
		{standard, "*/5 1,3,9 * * *", "每天 01、03、09 点，每 5 分钟"},
		{standard, "3 * 1 * *", "每月 1 日，每小时的第 3 分"},
		{standard, "0 9 * * 1,4", "每周一、周四 09:00"},
		{standard, "0 9 * * 0,6", "每周六、周日 09:00"},
		{standard, "0 9 * * SAT-SUN", "每周六、周日 09:00"},
		{standard, "0 0 1,15 * *", "每月 1、15 日 00:00"},
		{standard, "0 4 8-14 * *", "每月 8 至 14 日 04:00"},
		{standard, "0 0 29 2 *", "2 月 29 日 00:00"},
		{standard, "0 0 1 1,7 *", "1、7 月 1 日 00:00"},
		{standard, "0 0 * 6-8 1", "6 至 8 月每周一 00:00"},
		{standard, "0 0 13 * 5", "每月 13 日或每周五 00:00"},
		{standard, "0 0 1-31 * 5", "每天 00:00"},
		{standard, "0 0 */2 * 1", "每月从 1 日起每 2 天（仅限周一）00:00"},
		{quartz, "0 0 12 L * ?", "每月最后一天 12:00"},
		{quartz, "0 0 12 L-1 * ?", "每月倒数第 2 天 12:00"},
		{quartz, "0 0 0 LW 3 ?", "3 月最后一个工作日 00:00"},
		{quartz, "0 0 0 L-3W * ?", "每月最接近倒数第 4 天的工作日 00:00"},
		{quartz, "0 0 0 15W * ?", "每月最接近 15 日的工作日 00:00"},
		{quartz, "0 0 0 ? * 6L", "每月最后一个周五 00:00"},
		{quartz, "0 0 0 ? * 6#3", "每月第 3 个周五 00:00"},
		{quartz, "0 0/15 22-2 * * ?", "每天 22:00 至 02:45，每 15 分钟"},
		{quartz, "15 30 8 ? * FRI-MON 2027", "2027 年每周五至周一 08:30:15"},
		{quartz, "0 0 0 1 1 ? 2026-2030", "2026 至 2030 年 1 月 1 日 00:00"},
		{quartz, "0 0 0 1 1 ? */2", "1970 至 2098 年间的 65 年 1 月 1 日 00:00"},
	}
	for _, test := range tests {
		if got := compile(t, test.expr, test.dialect, "Asia/Shanghai").DescribeChinese(); got != test.want+"，Asia/Shanghai" {
			t.Errorf("%s %q: %q, want %q", test.dialect, test.expr, got, test.want)
		}
	}
}

func TestDescribeKindsInChinese(t *testing.T) {
	at := domain.AtPtr(instant(t, "2026-03-29T01:30:00Z"))
	tests := []struct {
		in   domain.Schedule
		want string
	}{
		{domain.Schedule{Kind: "none"}, "仅由手动、API、事件或父任务触发"},
		{domain.Schedule{Kind: "fixed_rate", Every: 90 * second}, "每 90 秒"},
		{domain.Schedule{Kind: "fixed_rate", Every: hour}, "每小时"},
		{domain.Schedule{Kind: "fixed_rate", Every: 24 * hour}, "每 24 小时"},
		{domain.Schedule{Kind: "fixed_rate", Every: 1500 * second / 1000}, "每 1.5 秒"},
		{domain.Schedule{Kind: "fixed_delay", Delay: minute}, "前一次运行结束 1 分钟后"},
		{domain.Schedule{Kind: "once", At: at, TimeZone: "Europe/Berlin"}, "仅一次，2026-03-29 03:30:00，Europe/Berlin"},
		{domain.Schedule{Kind: "fixed_rate", Every: minute, StartAt: at, Jitter: 5 * second}, "每分钟，自 2026-03-29 01:30:00Z 起，最多延迟 5 秒"},
		{domain.Schedule{Kind: "fixed_rate", Every: minute, EndAt: at, TimeZone: "Europe/Berlin"}, "每分钟，至 2026-03-29 03:30:00+02:00 止"},
		{domain.Schedule{Kind: "fixed_rate", Every: minute, StartAt: at, EndAt: at}, "每分钟，自 2026-03-29 01:30:00Z 起至 2026-03-29 01:30:00Z 止"},
	}
	for _, test := range tests {
		if got := mustCompile(t, test.in, Options{}).DescribeChinese(); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
