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
		parts = append([]string{fmt.Sprintf("调度器未能在应触发时刻后的 %s内处理（最多迟了 %s）", ChineseDuration(a.duration("tolerance_ms")), ChineseDuration(a.duration("late_ms")))},
			a.chinesePauses()...)
	case ClockStepped:
		parts = append([]string{Disturbed(Chinese, "clock_step", a.duration("step_ms"), a.text("from"), a.text("to"))}, a.chinesePauses()...)
	case PostgresAway:
		parts = append([]string{Disturbed(Chinese, kindPostgresAway, 0, a.text("from"), a.text("to"))}, a.chinesePauses()...)
	case GroupPaused, JobPaused:
		parts = a.chinesePauses()
	case Restored:
		return Disturbed(Chinese, kindRestored, 0, a.text("from"), a.text("to")) + "；它们可能已经执行过，不再补跑"
	case Unexplained:
		return fmt.Sprintf("原因不明：触发时间检查既没有找到运行，也没有找到错过记录，而当时任务的版本 %d 有效", a.num("version"))
	default:
		return e.Text
	}
	return strings.Join(append(parts, a.chineseOutcome()), "；")
}

func (a Args) chinesePauses() []string {
	var out []string
	for _, p := range a.list("pauses") {
		what, from, to, by := "执行器组 "+p.text("group")+" ", p.text("from"), p.text("to"), p.text("by")
		if p.flag("job") {
			what = "任务"
		}
		s := fmt.Sprintf("%s由 %s 暂停，时间为 %s 至 %s", what, by, from, to)
		if to == "" {
			s = fmt.Sprintf("%s由 %s 暂停，自 %s 起", what, by, from)
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

// ChineseDuration writes a duration in Chinese, such as 1 小时 2 分 3 秒.
func ChineseDuration(d time.Duration) string {
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

// In returns the text in a language. In Chinese, routes, missing servers and roles, and explanations of which only the sentence is known keep the
// English text.
func (e *Explanation) In(language Language) string {
	if e == nil || language == English {
		return e.String()
	}
	if s := e.Args.chineseWaiting(e.Code); s != "" {
		return s
	}
	if s := e.Args.chineseEnd(e.Code); s != "" {
		return s
	}
	if s := e.Args.chineseChange(e.Code); s != "" {
		return s
	}
	return ChineseMissed(e)
}

// chineseChange returns what changed since a failing job succeeded, in the words of the web console; "" for the codes of other explanations.
func (a Args) chineseChange(code Code) string {
	switch code { //nolint:exhaustive // the others explain something else
	case JobEdited:
		return fmt.Sprintf("任务已修改：从版本 %d 到版本 %d，最后由 %s 于 %s 修改", a.num("from"), a.num("to"), a.text("by"), a.text("at"))
	case ScriptEdited:
		return fmt.Sprintf("脚本已修改：从版本 %d 到版本 %d", a.num("from"), a.num("to"))
	case ExecutorChanged:
		return fmt.Sprintf("执行器版本从 %s 变为 %s", a.text("from"), a.text("to"))
	case InstanceChanged:
		return fmt.Sprintf("实例从 %s 变为 %s", a.text("from"), a.text("to"))
	}
	return ""
}

// chineseEnd returns how the engine ended an attempt or a run, in the words of the web console; "" for the codes of other
// explanations.
func (a Args) chineseEnd(code Code) string {
	switch code { //nolint:exhaustive // the others explain something else
	case EarlierUnfinished:
		return fmt.Sprintf("到期时，本任务的运行 %s 尚未结束", a.text("run"))
	case TooManyHeld:
		return fmt.Sprintf("本任务被阻塞的运行已达 %d 次", a.num("limit"))
	case CoveredBy:
		return fmt.Sprintf("被本任务的运行 %s 覆盖", a.text("run"))
	case KilledBy:
		return fmt.Sprintf("由 %s 终止", a.text("by"))
	case JobDeleted:
		return "任务已被删除"
	case NeverStarted:
		return "终止时尚未启动"
	case NotTaken:
		return fmt.Sprintf("%s内，执行器组 %s 中没有提供处理器 %s 的实例接收它", ChineseDuration(a.duration("deadline_ms")), a.text("group"), a.text("handler"))
	case ScriptNotTaken:
		return fmt.Sprintf("%s内，执行器组 %s 中没有能运行 %s 脚本的实例接收它", ChineseDuration(a.duration("deadline_ms")), a.text("group"), a.text("language"))
	case ShardInstanceGone:
		return fmt.Sprintf("该分片属于实例 %s，但它已不在线", a.text("instance"))
	case OfferTooLarge:
		return fmt.Sprintf("参数和父任务输出过大：派发消息为 %d 字节，上限为 %d 字节", a.num("bytes"), a.num("limit"))
	case InstanceDied:
		return fmt.Sprintf("实例 %s 已失联", a.text("instance"))
	case StartBarred:
		return "所在实例在线，但不会启动它"
	case AttemptUnknown:
		return "所在实例在线，但没有它的记录"
	case ResultLost:
		return "所在实例已执行完毕，但结果已丢失"
	case OutputLost:
		return "输出已丢失：这次尝试此前已结束，所在实例只保留了结局"
	case NoReport:
		return "所在实例未按时报告结束"
	case ResultRefused:
		return "结果无法保存，已转入死信"
	}
	return ""
}

// chineseWaiting returns why a run waits, in the words of the web console; "" for the codes of other explanations.
func (a Args) chineseWaiting(code Code) string {
	switch code { //nolint:exhaustive // the others explain something else
	case NoInstance:
		return "该组没有在线实例"
	case NoHandler:
		return "没有在线实例" + a.chineseOffers()
	case Draining:
		return a.chineseOffers() + "的实例都正在排空"
	case Unfit:
		return a.chineseOffers() + "的实例都报告自身有故障或正在排空"
	case NoRoom:
		if len(a.list("slots")) == 0 {
			return "没有空闲槽位"
		}
		return "没有空闲槽位：" + a.chineseSlots()
	case PinnedGone:
		can := "不提供该处理器"
		if language := a.text("language"); language != "" {
			can = "不能运行 " + language + " 脚本"
		}
		return fmt.Sprintf("只能在实例 %s 上运行，但它不在线，或者%s", a.text("instance"), can)
	case NATSUnavailable:
		return "NATS 不可用"
	case BehindOthers:
		return "排在已在等待的运行之后"
	case AskingInstances:
		return "正在询问各实例"
	case NoAnswer:
		return "没有实例响应探测" + a.chinesePassed()
	case AllBusy:
		return "没有实例空闲" + a.chinesePassed()
	case Refused:
		reason, ok := chineseRefusals[a.text("reason")]
		if !ok {
			reason = a.text("reason")
		}
		return fmt.Sprintf("实例 %s 拒绝接收：%s", a.text("instance"), reason)
	case InstanceAbsent:
		return fmt.Sprintf("派发时实例 %s 不在线", a.text("instance"))
	case NotStarted:
		return fmt.Sprintf("实例 %s 不会启动它", a.text("instance"))
	case StartFailed:
		return "已接收它的实例未能启动"
	case EarlierRun:
		return "本任务的前一次运行尚未结束"
	case CoveredRun:
		return "被它覆盖的运行尚未结束"
	}
	return ""
}

var chineseRefusals = map[string]string{
	"full": "没有空闲槽位", "draining": "正在排空", "no_handler": "没有该处理器", "lease": "心跳已过期", "stale": "派发依据的心跳已过期",
	"unsupported": "不支持", "other": "其他原因",
}

func (a Args) chineseOffers() string {
	if language := a.text("language"); language != "" {
		return "能运行 " + language + " 脚本"
	}
	return "提供该处理器"
}

func (a Args) chineseSlots() string {
	var parts []string
	for _, s := range a.list("slots") {
		parts = append(parts, fmt.Sprintf("%s 已占用 %d/%d", s.text("instance"), s.num("taken"), s.num("capacity")))
	}
	return a.chineseMore(parts)
}

func (a Args) chinesePassed() string {
	var parts []string
	for _, p := range a.list("passed") {
		if p.flag("answered") {
			parts = append(parts, fmt.Sprintf("%s 正在执行本任务的 %d 次运行", p.text("instance"), p.num("runs")))
		} else {
			parts = append(parts, p.text("instance")+" 没有响应")
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "：" + a.chineseMore(parts)
}

func (a Args) chineseMore(parts []string) string {
	if n := a.num("more"); n > 0 {
		parts = append(parts, fmt.Sprintf("另有 %d 个实例", n))
	}
	return strings.Join(parts, "，")
}
