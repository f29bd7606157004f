package firecheck

import (
	"fmt"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// The names of states, reasons and weekdays in Chinese are those of the web console.
var (
	chineseStates = map[domain.State]string{
		domain.Pending: "待触发", domain.Queued: "排队中", domain.Running: "运行中", domain.Retrying: "等待重试",
		domain.Succeeded: "成功", domain.Failed: "失败", domain.Cancelled: "已取消", domain.Skipped: "已跳过",
	}
	chineseReasons = map[domain.Reason]string{
		domain.ReasonHandlerError: "处理器报错", domain.ReasonHandlerPanic: "处理器崩溃", domain.ReasonHandlerNotFound: "处理器不存在",
		domain.ReasonTimeout: "超时", domain.ReasonLost: "实例失联", domain.ReasonDrained: "实例已停机", domain.ReasonNoExecutor: "无可用执行器",
		domain.ReasonQueueFull: "队列已满", domain.ReasonKilled: "被终止", domain.ReasonDiscarded: "已丢弃", domain.ReasonCovered: "被后一次覆盖",
		domain.ReasonJobDeleted: "任务已删除", domain.ReasonBadScript: "脚本无效", domain.ReasonUnsupported: "执行器不支持",
	}
	chineseChanges = map[string]string{
		"created": "创建", "edited": "编辑", "enabled": "启用", "disabled": "停用", "deleted": "删除", "calendar": "随日历变更",
	}
	chineseWeekdays = [...]string{"星期日", "星期一", "星期二", "星期三", "星期四", "星期五", "星期六"}
)

// becauseChinese returns why a run ended without a start. The stored message of a run is English, unless it is of a handler, so
// only a run whose reason is unknown shows it.
func becauseChinese(r *Run) string {
	switch r.Reason {
	case domain.ReasonDiscarded:
		return "任务的阻塞策略为 discard_later，而前一次运行尚未结束"
	case domain.ReasonCovered:
		return "任务的阻塞策略为 cover_early，而后一次运行已到期"
	case domain.ReasonNoExecutor:
		return "没有执行器能接收它"
	case domain.ReasonQueueFull:
		return "等待的运行过多"
	case domain.ReasonKilled:
		return "它被手动终止"
	case domain.ReasonJobDeleted:
		return "任务已被删除"
	case domain.ReasonLost, domain.ReasonDrained, domain.ReasonHandlerError, domain.ReasonHandlerPanic, domain.ReasonHandlerNotFound,
		domain.ReasonTimeout, domain.ReasonBadScript, domain.ReasonUnsupported:
		return chineseReasons[r.Reason]
	case domain.NoReason:
	}
	if r.Message == "" {
		return "没有记录详情"
	}
	return r.Message
}

// madeChinese describes the creation of a version, such as 版本 3（由 ann 于 … 停用）.
func (f *Facts) madeChinese(v *Version) string {
	by := ""
	if v.By != "" {
		by = "由 " + v.By + " "
	}
	change, ok := chineseChanges[v.Change]
	if !ok {
		change = v.Change
	}
	return fmt.Sprintf("版本 %d（%s于 %s %s）", v.Number, by, f.say(v.From), change)
}

// duration writes a duration in the language of the answer.
func (f *Facts) duration(d time.Duration) string {
	if f.Language == explain.Chinese {
		return explain.ChineseDuration(d)
	}
	return d.String()
}
