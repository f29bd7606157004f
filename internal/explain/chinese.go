package explain

import (
	"fmt"
	"strings"
	"time"
)

// ChineseMissed returns the reason of missed fire times in Chinese, for alerts. Explanations that are not about missed fire
// times, and those of which only the sentence is known, keep the English text.
func ChineseMissed(e *Explanation) string {
	if e == nil {
		return ""
	}
	a := e.Args
	var parts []string
	switch e.Code { //nolint:exhaustive // the others have no Chinese text here
	case NoScheduler:
		parts = append([]string{fmt.Sprintf("调度器未能在应触发时刻后的 %s内处理（最多迟了 %s）", chineseDuration(a.duration("tolerance_ms")), chineseDuration(a.duration("late_ms")))},
			a.chinesePauses()...)
	case GroupPaused:
		parts = a.chinesePauses()
	case Unexplained:
		return fmt.Sprintf("原因不明：触发时间审计既没有找到运行，也没有找到错过记录，而当时任务的版本 %d 有效", a.num("version"))
	default:
		return e.Text
	}
	return strings.Join(append(parts, a.chineseOutcome()), "；")
}

func (a Args) chinesePauses() []string {
	var out []string
	for _, p := range a.list("pauses") {
		group, from, to, by := p.text("group"), p.text("from"), p.text("to"), p.text("by")
		s := fmt.Sprintf("执行器组 %s 由 %s 暂停，时间为 %s 至 %s", group, by, from, to)
		if to == "" {
			s = fmt.Sprintf("执行器组 %s 由 %s 暂停，自 %s 起", group, by, from)
		}
		if reason := p.text("reason"); reason != "" {
			s += "（" + reason + "）"
		}
		out = append(out, s)
	}
	return out
}

func (a Args) chineseOutcome() string {
	switch a.text("misfire") {
	case OutcomeFireOnce:
		return "按 fire_once 策略补跑最近一次"
	case OutcomeFireAll:
		return fmt.Sprintf("按 fire_all 策略补跑最近 %d 次", a.num("latest"))
	case OutcomeChanged:
		return "期间任务有变更"
	}
	return "策略为 skip，不补跑"
}

// chineseDuration writes a duration such as 1 小时 2 分 3 秒.
func chineseDuration(d time.Duration) string {
	var parts []string
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Hour, "小时"}, {time.Minute, "分"}} {
		if n := d / u.unit; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, u.name))
			d %= u.unit
		}
	}
	if d > 0 || len(parts) == 0 {
		parts = append(parts, fmt.Sprintf("%g 秒", d.Seconds()))
	}
	return strings.Join(parts, " ")
}
