package firecheck

import (
	"fmt"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

// Finding is the result of the check of one fire time.
type Finding struct {
	Fate     Fate
	Cause    string // consecutive findings of a job with the same fate and cause become one Item
	Text     string // a phrase in the language of the facts
	Lateness time.Duration
	RunID    domain.RunID // zero: the fire time has no run
}

// Explain returns the finding for a fire time.
func (f *Facts) Explain(fire Fire) Finding {
	runs := f.Runs[fire.ID(f.Job.ID)]
	switch len(runs) {
	case 0:
		return f.explainNone(&fire)
	case 1:
		return f.explainRun(&fire, &runs[0])
	}
	return Finding{
		Fate: FateDoubled, RunID: runs[0].ID,
		Text: f.text("it has %d runs, one is %s and one is %s", "它有 %d 次运行，其中一次%s，一次%s",
			len(runs), f.state(runs[0].State), f.state(runs[1].State)),
	}
}

// explainNone explains a fire time without a run.
func (f *Facts) explainNone(fire *Fire) Finding {
	v := &f.Job.Versions[fire.Version]
	switch fire.Claim {
	case Disabled:
		return Finding{Fate: FateDisabled, Cause: v.cause(), Text: f.text("the job was disabled: %s", "任务当时处于停用状态：%s", f.held(fire.Version))}
	case Cut:
		return Finding{Fate: FateEdited, Cause: v.cause(), Text: f.ended(fire)}
	case Owned:
	}
	if m := f.entry(fire.Time); m != nil {
		return f.missed(fire, m)
	}
	if by, ok := f.overtaken(fire); ok {
		return Finding{Fate: FateEdited, Cause: v.cause(), Text: by}
	}
	switch next := f.Job.NextFire; {
	case fire.Due.After(f.Now):
		return Finding{Fate: FateNotDue, Text: f.text("it is due at %s", "应触发时刻为 %s，尚未到", f.say(fire.Due))}
	case !next.IsZero() && !next.After(fire.Time):
		if in := f.heldUp(fire); in != nil {
			return Finding{
				Fate: FatePaused, Cause: in[0].From.String(),
				Text: f.text("%s; after the pause, the misfire policy %s decides about it", "%s；暂停结束后由错过策略 %s 处理", f.pauses(in), v.Misfire),
			}
		}
		if gap, away := f.away(f.Now); away {
			return Finding{
				Fate: FateSchedulerAway, Cause: gap.From.String(),
				Text: f.text("%s; when one is back, the misfire policy %s decides about it", "%s；调度器恢复后由错过策略 %s 处理", f.sayAway(gap), v.Misfire),
			}
		}
		return Finding{Fate: FateUndecided, Text: f.text("planning has not decided it yet", "调度尚未处理到它")}
	case f.Now.Sub(fire.Due) < Settled:
		return Finding{Fate: FateUndecided, Text: f.text("it was due a moment ago, and its run is not recorded yet", "它刚刚到期，运行尚未记录")}
	case !f.Kept(fire.Time):
		return Finding{Fate: FateRetention, Cause: fire.Time.Format(time.DateOnly), Text: f.text("the runs of its day are no longer kept", "当天的运行记录已超过保留期限")}
	case v.Retention > 0 && f.Now.Sub(fire.Due) > v.Retention:
		return Finding{Fate: FateRetention, Cause: v.cause(), Text: f.text("the job keeps its runs for %s", "任务的运行记录只保留 %s", f.duration(v.Retention))}
	}
	return Finding{Fate: FateUnexplained, Cause: v.cause(), Text: f.text(
		"it has neither a run nor an entry in the missed ledger, although version %d of the job was in force and enabled",
		"它既没有运行，也没有错过记录，而当时任务的版本 %d 有效且已启用", v.Number)}
}

// heldUp returns the pauses that keep planning from deciding a fire time: those in which it is due, and the current ones.
func (f *Facts) heldUp(fire *Fire) []*domain.Pause {
	in := f.paused(fire)
	for _, p := range f.paused(&Fire{Due: f.Now, Version: fire.Version}) {
		if !slices.Contains(in, p) {
			in = append(in, p)
		}
	}
	return in
}

// entry returns the ledger entry that covers a fire time.
func (f *Facts) entry(t time.Time) *Missed {
	for i := range f.Missed {
		if m := &f.Missed[i]; !t.Before(m.First.Time) && !t.After(m.Last.Time) {
			return m
		}
	}
	return nil
}

func (f *Facts) missed(fire *Fire, m *Missed) Finding {
	if m.Why != nil && m.Why.Code == explain.Restored {
		return Finding{Fate: FateUncertain, Cause: string(domain.Restored), Text: m.Why.In(f.Language)}
	}
	text := f.text("it is in the missed ledger: %s", "它已记入错过台账：%s", m.Why.In(f.Language))
	if in := f.paused(fire); in != nil && !m.Why.TellsPause() {
		text += f.text("; ", "；") + f.pauses(in)
	}
	if gap, away := f.away(fire.Due); away && !tellsFault(m.Why, gap.Fault) {
		text += f.text("; ", "；") + f.sayAway(gap)
	}
	return Finding{Fate: FateMissed, Cause: fmt.Sprint(m.ID), Text: text}
}

// tellsFault reports whether the reason of a ledger entry names the disturbance.
func tellsFault(why *explain.Explanation, d *domain.Disturbance) bool {
	if why == nil || d == nil {
		return false
	}
	return why.Code == explain.ClockStepped && d.Kind == domain.ClockStep || why.Code == explain.PostgresAway && d.Kind == domain.PostgresAway
}

// overtaken reports whether an edit skipped the fire time: it was due after the edit, but planning had already decided a later
// fire time, and planning decides in order. This can happen with jitter, or after a run was admitted ahead of its due instant.
func (f *Facts) overtaken(fire *Fire) (string, bool) {
	v := &f.Job.Versions[fire.Version]
	if !f.MayBeOvertaken(fire) {
		return "", false
	}
	said := func(later time.Time) (string, bool) {
		return f.text("the job was edited at %s, before it was due, and by then a later fire time, %s, had been decided",
			"任务在它到期之前的 %s 被编辑，而那时已经处理了更晚的触发时间 %s", f.say(v.From), f.say(later)), true
	}
	if later, ok := f.Later[fire.Time.UnixMilli()]; ok {
		return said(later)
	}
	for i := range f.Missed {
		if m := &f.Missed[i]; m.Last.After(fire.Time) && !m.At.After(v.From) {
			return said(m.Last.Time)
		}
	}
	return "", false
}

// MayBeOvertaken reports whether Explain needs the entry of Later for a fire time without a run, because an edit may have
// skipped it.
func (f *Facts) MayBeOvertaken(fire *Fire) bool {
	return fire.Claim == Owned && !fire.Time.After(f.Job.Versions[fire.Version].From.Add(Ahead))
}

// explainRun explains a fire time with a run.
func (f *Facts) explainRun(fire *Fire, r *Run) Finding {
	out := Finding{Fate: FateRan, RunID: r.ID}
	started := !r.StartedAt.IsZero() || r.LatenessMS != nil
	restored := f.restored(fire, r)
	switch {
	case restored != nil && r.Missing == 0:
		out.Fate, out.Cause = FateUncertain, string(domain.Restored)+"/unfinished"
		out.Text = f.text("its run was unfinished then, so that it may have run twice: %s", "它的运行当时尚未结束，因此可能执行过两次：%s",
			restored.DescribeIn(f.Language, f.say))
	case r.Missing > 0:
		out.Fate = FateUnexplained
		out.Text = f.text("%d of the %d shards of its run are missing", "它的运行缺少 %d 个分片，共 %d 个分片", r.Missing, r.Shards)
	case r.State.Final() && !started:
		out.Fate, out.Cause = FateNotStarted, string(r.State)+"/"+string(r.Reason)
		out.Text = f.text("its run ended %s without a start: %s", "它的运行未启动就已结束，结果为%s：%s", f.outcome(r), f.because(r))
	case started:
		f.punctual(&out, fire, r)
	case r.HeldBy != nil:
		out.Fate, out.Text = FateHeld, f.text("its run is held: run %s of the job is unfinished", "它的运行被阻塞：本任务的运行 %s 尚未结束", r.HeldBy)
	case r.State == domain.Pending && r.DueAt.After(f.Now):
		out.Fate, out.Text = FateNotDue, f.text("its run is planned and due at %s", "它的运行已计划，将于 %s 到期", f.say(r.DueAt))
	case r.State == domain.Pending:
		f.unfired(&out, fire)
	case r.State == domain.Queued && r.Instance != "":
		out.Fate, out.Text = FateWaiting, f.text("its run was given to instance %s, which has not reported a start", "它的运行已派发给实例 %s，尚未收到启动报告", r.Instance)
	default:
		out.Fate, out.Text = FateWaiting, f.text("its run waits for an executor", "它的运行正在等待执行器")
		if r.Waiting != nil {
			out.Text += f.text(": ", "：") + r.Waiting.In(f.Language)
		}
	}
	return out
}

// restored returns the restore because of which a run may have run twice: the run was due before the restore, was unfinished in
// the restored state, and has started since then or may still start.
func (f *Facts) restored(fire *Fire, r *Run) *domain.Disturbance {
	for i := range f.Disturbed {
		d := &f.Disturbed[i]
		if d.Kind != domain.Restored || fire.Due.After(d.To) {
			continue
		}
		if r.StartedAt.After(d.To) || r.StartedAt.IsZero() && !r.State.Final() {
			return d
		}
	}
	return nil
}

// unfired explains a run that is past due and has not been fired.
func (f *Facts) unfired(out *Finding, fire *Fire) {
	out.Lateness = f.Now.Sub(fire.Due)
	gap, away := f.away(f.Now)
	switch {
	case away:
		out.Fate, out.Cause, out.Text = FateSchedulerAway, gap.From.String(), f.text("its run is planned, and %s", "它的运行已计划，但%s", f.sayAway(gap))
	case out.Lateness > f.Tolerance:
		out.Fate, out.Cause, out.Text = FateLate, "unfired", f.text("its run is planned, but no scheduler has fired it yet", "它的运行已计划，但尚无调度器触发它")
	default:
		out.Fate, out.Text = FateUndecided, f.text("its run is planned and about to be fired", "它的运行已计划，即将触发")
	}
}

// punctual explains a run that started: its lateness and what took the most time.
func (f *Facts) punctual(out *Finding, fire *Fire, r *Run) {
	first := r.Attempt <= 1 && !r.StartedAt.IsZero()
	switch {
	case first:
		out.Lateness = r.StartedAt.Sub(fire.Due)
	case r.LatenessMS != nil:
		out.Lateness = time.Duration(*r.LatenessMS) * time.Millisecond
	}
	out.Text = f.fared(r)
	if out.Lateness <= f.Tolerance {
		return
	}
	out.Fate = FateLate
	why := f.text("the cause is not recorded", "没有记录原因")
	gap, away := f.away(fire.Due)
	held, waited, slow := r.DueAt.Sub(fire.Due), r.DispatchedAt.Sub(r.DueAt), r.StartedAt.Sub(r.DispatchedAt)
	switch {
	case r.Cause == domain.CauseMisfire && f.paused(fire) != nil:
		out.Cause, why = "paused", f.text("%s, and the misfire policy made up for it", "%s，之后按错过策略补跑", f.pauses(f.paused(fire)))
	case r.Cause == domain.CauseMisfire && away:
		out.Cause, why = gap.cause("misfire"), f.text("%s, and the misfire policy made up for it", "%s，之后按错过策略补跑", f.sayAway(gap))
	case r.Cause == domain.CauseMisfire:
		out.Cause, why = "misfire", f.text("no scheduler fired it in time, and the misfire policy made up for it", "调度器未能按时触发，之后按错过策略补跑")
	case !first || r.DispatchedAt.IsZero():
		out.Cause = "unknown"
	case held >= waited && held >= slow:
		out.Cause, why = "held", f.text("the job's block policy held it back until %s", "任务的阻塞策略使它等到 %s", f.say(r.DueAt))
	case waited >= slow && away:
		out.Cause, why = gap.cause("away"), f.sayAway(gap)
	case waited >= slow:
		out.Cause, why = "waited", f.text("no executor could take it before %s", "在 %s 之前没有执行器能接收它", f.say(r.DispatchedAt))
	default:
		out.Cause, why = "slow", f.text("instance %s started it only at %s", "实例 %s 到 %s 才启动它", r.Instance, f.say(r.StartedAt))
	}
	out.Text += f.text(", %s late: %s", "，迟了 %s：%s", f.duration(out.Lateness.Round(time.Millisecond)), why)
}

// outcome returns a run's state and reason.
func (f *Facts) outcome(r *Run) string {
	if r.Reason == domain.NoReason {
		return f.state(r.State)
	}
	return f.text("%s (%s)", "%s（%s）", f.state(r.State), f.reason(r.Reason))
}

// fared returns a phrase about a run that started.
func (f *Facts) fared(r *Run) string {
	switch r.State {
	case domain.Pending, domain.Queued, domain.Retrying:
		return f.text("its run has been tried, and waits for attempt %d", "它的运行已尝试过，正在等待第 %d 次尝试", r.Attempt+1)
	case domain.Running:
		return f.text("its run is running on instance %s", "它的运行正在实例 %s 上执行", r.Instance)
	case domain.Succeeded, domain.Failed, domain.Cancelled, domain.Skipped:
	}
	return f.text("its run ended %s", "它的运行已结束，结果为%s", f.outcome(r))
}

// because returns a phrase that says why a run ended without a start.
func (f *Facts) because(r *Run) string {
	if f.Language == explain.Chinese {
		return becauseChinese(r)
	}
	switch r.Reason {
	case domain.ReasonDiscarded:
		return "the job's block policy is discard_later, and " + r.Message
	case domain.ReasonCovered:
		return "the job's block policy is cover_early, and a later run came due"
	case domain.ReasonNoExecutor, domain.ReasonQueueFull, domain.ReasonKilled, domain.ReasonJobDeleted, domain.ReasonLost, domain.ReasonDrained,
		domain.ReasonHandlerError, domain.ReasonHandlerPanic, domain.ReasonHandlerNotFound, domain.ReasonTimeout,
		domain.ReasonBadScript, domain.ReasonUnsupported, domain.NoReason:
	}
	if r.Message == "" {
		return "no details are recorded"
	}
	return r.Message
}
