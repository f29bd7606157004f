package gateway

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/gateway/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

// State is the state of a send. The package comment defines the states.
type State string

// The states.
const (
	Accepted  State = "accepted"
	Sending   State = "sending"
	Taken     State = "taken"
	Unknown   State = "unknown"
	Ended     State = "ended"
	Lost      State = "lost"
	Unstarted State = "unstarted"
)

// How long settled sends are kept: Kept, or LostKept if the attempt was declared lost.
const (
	Kept     = 10 * time.Minute
	LostKept = 7 * 24 * time.Hour
)

// ErrNotHeld means that the address has another owner or another epoch, or that its lease has ended. Its code is Conflict.
var ErrNotHeld = domain.NewError(domain.Conflict, "another gateway serves the address")

// Attempt is one attempt of a run.
type Attempt struct {
	Run    domain.RunID
	Number int
}

// Offer is an attempt that an address accepts.
type Offer struct {
	Attempt
	Bind    int
	WireID  int64  // the job's id for executors
	Handler string // or "script:<language>"
}

// Send is an attempt for an address. Result is valid in the states ended, lost and unstarted.
type Send struct {
	LogID           int64
	Group, Instance string
	BootID          string
	Offer
	State      State
	AcceptedAt time.Time
	SentAt     *time.Time // in whole milliseconds; nil: it was not sent
	KillReason string     // of the first kill; "": none
	EndedAt    *time.Time
	Settled    bool
	Result     Result
}

// Result is the end of an attempt, in the terms of the wire protocol.
type Result struct {
	Outcome, Reason string
	Message, Output string
	Permanent       bool
}

// acceptTries is how often Accept is tried. A second try can fail only if the send in its way becomes unstarted meanwhile, and another process adds one again.
const acceptTries = 3

// Accept stores sends for offers, no two for the same attempt, and returns the log ids of the new ones by attempt. An attempt is missing in the answer if it has a send that is not unstarted, on whatever
// address, or an unstarted one with this bind or a higher one, or an unstarted one of this boot that is not settled: see Known. The error is ErrNotHeld if the address
// is not the owner's.
func (s *Store) Accept(ctx context.Context, owner string, h Hold, offers []Offer) (map[Attempt]int64, error) {
	p := sqlcgen.AcceptParams{GroupName: h.Group, Instance: h.Instance, Owner: owner, Epoch: h.Epoch}
	for _, o := range offers {
		p.RunIds, p.Attempts, p.Binds = append(p.RunIds, o.Run), append(p.Attempts, int32(o.Number)), append(p.Binds, int32(o.Bind))
		p.WireIds, p.Handlers = append(p.WireIds, o.WireID), append(p.Handlers, o.Handler)
	}
	rows, err := s.q.Accept(ctx, p)
	for try := 1; pgerr.Duplicate(err) && try < acceptTries; try++ { // now the statement finds the send that is in the way
		rows, err = s.q.Accept(ctx, p)
	}
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	if len(rows) == 0 {
		return nil, ErrNotHeld
	}
	accepted := make(map[Attempt]int64, len(rows))
	for _, r := range rows {
		if r.LogID != 0 {
			accepted[Attempt{r.RunID, int(r.Attempt)}] = r.LogID
		}
	}
	return accepted, nil
}

// Known returns all sends of attempts that are still stored, by log id.
func (s *Store) Known(ctx context.Context, attempts []Attempt) ([]Send, error) {
	var p sqlcgen.KnownParams
	for _, a := range attempts {
		p.RunIds, p.Attempts = append(p.RunIds, a.Run), append(p.Attempts, int32(a.Number))
	}
	rows, err := s.q.Known(ctx, p)
	return toSends(rows), pgerr.Translate(err)
}

// RaiseBinds raises the binds of sends for which an offer was repeated. Only Attempt and Bind of the offers are used.
func (s *Store) RaiseBinds(ctx context.Context, offers []Offer) error {
	var p sqlcgen.RaiseBindsParams
	for _, o := range offers {
		p.RunIds, p.Attempts, p.Binds = append(p.RunIds, o.Run), append(p.Attempts, int32(o.Number)), append(p.Binds, int32(o.Bind))
	}
	return pgerr.Translate(s.q.RaiseBinds(ctx, p))
}

// Send changes accepted sends of addresses to sending. It returns the sends that the caller must send now, with their instants by log id, and the rests of the leases: zero
// for an address that is not the owner's. The caller may begin to write a request only before the rest has passed since it called Send.
func (s *Store) Send(ctx context.Context, owner string, holds []Hold, logIDs []int64) (sentAt map[int64]time.Time, left []time.Duration, err error) {
	p := sqlcgen.SendParams{Owner: owner, LogIds: logIDs}
	p.GroupNames, p.Instances, p.Epochs = split(holds)
	rows, err := s.q.Send(ctx, p)
	if err != nil {
		return nil, nil, pgerr.Translate(err)
	}
	at := make(map[[2]string]int, len(holds))
	for i, h := range holds {
		at[[2]string{h.Group, h.Instance}] = i
	}
	sentAt, left = make(map[int64]time.Time, len(rows)), make([]time.Duration, len(holds))
	for _, r := range rows {
		left[at[[2]string{r.GroupName, r.Instance}]] = time.Duration(r.LeaseSeconds * float64(time.Second))
		if r.LogID != 0 {
			sentAt[r.LogID] = r.SentAt
		}
	}
	return sentAt, left, nil
}

// Answer is what is known of a call: Taken, Unknown or Unstarted, with a message for people.
type Answer struct {
	LogID   int64
	State   State
	Message string
}

// Answer records answers, and returns the log ids of the sends that they changed. A send that has ended stays as it is.
func (s *Store) Answer(ctx context.Context, answers []Answer) ([]int64, error) {
	var p sqlcgen.AnswerParams
	for _, a := range answers {
		p.LogIds, p.States, p.Messages = append(p.LogIds, a.LogID), append(p.States, string(a.State)), append(p.Messages, a.Message)
	}
	changed, err := s.q.Answer(ctx, p)
	return changed, pgerr.Translate(err)
}

// Withdraw ends accepted sends as unstarted, and returns the log ids of those that it changed. The reason of their results is that of the kill, if there was one.
func (s *Store) Withdraw(ctx context.Context, logIDs []int64) ([]int64, error) {
	changed, err := s.q.Withdraw(ctx, logIDs)
	return changed, pgerr.Translate(err)
}

// RequestKill records a kill of sends that have not ended. The reason of an earlier kill stays.
func (s *Store) RequestKill(ctx context.Context, logIDs []int64, reason string) error {
	return pgerr.Translate(s.q.RequestKill(ctx, sqlcgen.RequestKillParams{LogIds: logIDs, Reason: reason}))
}

// End is the end of a send, from a callback or declared by the gateway.
type End struct {
	LogID  int64
	Result Result
	// Killed means that the executor says that a kill ended the run. If the gateway has sent a kill, the result has its outcome and reason.
	Killed bool
}

// Disposition is what became of an End.
type Disposition string

// The dispositions.
const (
	Finished Disposition = "finished" // it is the result of the send
	Late     Disposition = "late"     // it is the result of a send that was declared lost
	Repeated Disposition = "repeated" // the send has ended before
	NotSent  Disposition = "not_sent" // the send was never sent, so the end cannot be true
	NoSend   Disposition = "no_send"  // the groups have no such send
)

// Finish stores the ends of sends of the named groups that a callback reports. It returns a disposition for each. Of several ends of one send, the first counts.
func (s *Store) Finish(ctx context.Context, groups []string, ends []End) ([]Disposition, error) {
	out, rest, at, err := s.finishSent(ctx, groups, ends)
	if err != nil || len(rest) == 0 {
		return out, err
	}
	others, err := s.finish(ctx, groups, rest, Sending, Taken, Unknown, Lost)
	for i, d := range others {
		out[at[i]] = d
	}
	return out, err
}

// finishSent stores the ends of sends that have not ended, which is the usual case. rest has the ends that it does not store, and at their places.
func (s *Store) finishSent(ctx context.Context, groups []string, ends []End) (out []Disposition, rest []End, at []int, err error) {
	first := make([]End, 0, len(ends))      // of each send
	place := make(map[int64]int, len(ends)) // of these
	for i, e := range ends {
		if _, repeated := place[e.LogID]; !repeated {
			place[e.LogID], first = i, append(first, e)
		}
	}
	slices.SortFunc(first, func(a, b End) int { return cmp.Compare(a.LogID, b.LogID) })
	p := columns(first)
	p.Groups = groups
	finished, err := s.q.FinishSent(ctx, p)
	if err != nil {
		return nil, nil, nil, pgerr.Translate(err)
	}
	out = make([]Disposition, len(ends))
	for _, id := range finished {
		out[place[id]] = Finished
	}
	for i, e := range ends {
		switch {
		case out[i] != "":
		case out[place[e.LogID]] == Finished:
			out[i] = Repeated
		default:
			rest, at = append(rest, e), append(at, i)
		}
	}
	return out, rest, at, nil
}

// columns returns the values of ends as columns. Groups is empty.
func columns(ends []End) (p sqlcgen.FinishSentParams) {
	for _, e := range ends {
		r := e.Result
		p.LogIds, p.Outcomes, p.Reasons = append(p.LogIds, e.LogID), append(p.Outcomes, r.Outcome), append(p.Reasons, r.Reason)
		p.Messages, p.Outputs = append(p.Messages, r.Message), append(p.Outputs, r.Output)
		p.Killed, p.Permanents = append(p.Killed, e.Killed), append(p.Permanents, r.Permanent)
	}
	return p
}

// Lose declares sends of the group lost that were taken or are unknown. The outcome of a result is failed.
func (s *Store) Lose(ctx context.Context, group string, ends []End) ([]Disposition, error) {
	for i := range ends {
		ends[i].Result.Outcome = string(Lost)
	}
	return s.finish(ctx, []string{group}, ends, Taken, Unknown)
}

func (s *Store) finish(ctx context.Context, groups []string, ends []End, from ...State) ([]Disposition, error) {
	c := columns(ends)
	p := sqlcgen.FinishParams{
		N: int32(len(ends)), Groups: groups, LogIds: c.LogIds, Outcomes: c.Outcomes, Reasons: c.Reasons, Messages: c.Messages, Outputs: c.Outputs,
		Killed: c.Killed, Permanents: c.Permanents,
	}
	for _, f := range from {
		p.FromStates = append(p.FromStates, string(f))
	}
	rows, err := s.q.Finish(ctx, p)
	if err != nil {
		return nil, pgerr.Translate(err)
	}
	first := make(map[int64]Disposition, len(rows))
	for _, r := range rows {
		first[r.LogID] = disposition(State(r.PreviousState), r.Finished)
	}
	out := make([]Disposition, len(ends))
	for i, e := range ends {
		out[i] = first[e.LogID]
		if d := out[i]; d == Finished || d == Late {
			first[e.LogID] = Repeated
		}
	}
	return out, nil
}

func disposition(before State, finished bool) Disposition {
	switch {
	case finished && before == Lost:
		return Late
	case finished:
		return Finished
	case before == "":
		return NoSend
	case before == Accepted, before == Unstarted:
		return NotSent
	}
	return Repeated
}

// Outstanding returns up to limit sends of an address whose results are not settled, by log id, starting after the given one.
func (s *Store) Outstanding(ctx context.Context, a *Address, after int64, limit int) ([]Send, error) {
	rows, err := s.q.Outstanding(ctx, sqlcgen.OutstandingParams{GroupName: a.Group, Instance: a.Instance, BootID: a.BootID, After: after, MaxRows: int32(limit)})
	return toSends(rows), pgerr.Translate(err)
}

// Results returns those of the sends that have results, by log id.
func (s *Store) Results(ctx context.Context, logIDs []int64) ([]Send, error) {
	rows, err := s.q.Results(ctx, logIDs)
	return toSends(rows), pgerr.Translate(err)
}

// Unsettled returns up to limit sends of addresses that have results which are not settled, by log id. The epochs do not matter.
func (s *Store) Unsettled(ctx context.Context, holds []Hold, limit int) ([]Send, error) {
	groups, instances, _ := split(holds)
	rows, err := s.q.Unsettled(ctx, sqlcgen.UnsettledParams{GroupNames: groups, Instances: instances, MaxRows: int32(limit)})
	return toSends(rows), pgerr.Translate(err)
}

// Retried returns those of the runs whose jobs allow another attempt after one of which it is unknown whether it still runs.
func (s *Store) Retried(ctx context.Context, runs []domain.RunID) ([]domain.RunID, error) {
	retried, err := s.q.Retried(ctx, runs)
	return retried, pgerr.Translate(err)
}

// Script is a version of a job's script.
type Script struct {
	Language, Code string
	CreatedAt      time.Time
}

// Script returns a version of a job's script.
func (s *Store) Script(ctx context.Context, job domain.JobID, version int) (Script, error) {
	r, err := s.q.Script(ctx, sqlcgen.ScriptParams{JobID: int64(job), Version: int32(version)})
	return Script{r.Language, r.Code, r.CreatedAt}, pgerr.Translate(err)
}

// SettledAttempt is an attempt whose result is settled, with the boot id of the result. An empty one stands for every boot.
type SettledAttempt struct {
	Attempt
	BootID string
}

// Settle records that dispatchers have settled the results of attempts. It returns the log ids of their sends that are settled, in no order. An attempt can have a
// later send, which goes on.
func (s *Store) Settle(ctx context.Context, attempts []SettledAttempt) ([]int64, error) {
	p := sqlcgen.SettleParams{KeptSeconds: Kept.Seconds(), LostKeptSeconds: LostKept.Seconds()}
	for _, a := range attempts {
		p.RunIds, p.Attempts, p.BootIds = append(p.RunIds, a.Run), append(p.Attempts, int32(a.Number)), append(p.BootIds, a.BootID)
	}
	logIDs, err := s.q.Settle(ctx, p)
	if err == nil && len(logIDs) < len(attempts) { // some were settled before
		logIDs, err = s.q.Settled(ctx, sqlcgen.SettledParams{RunIds: p.RunIds, Attempts: p.Attempts, BootIds: p.BootIds})
	}
	return logIDs, pgerr.Translate(err)
}

// WireIDs returns the wire ids of those of a group's jobs that have one.
func (s *Store) WireIDs(ctx context.Context, group string, jobs []domain.JobID) (map[domain.JobID]int64, error) {
	ids := make([]int64, len(jobs))
	for i, j := range jobs {
		ids[i] = int64(j)
	}
	rows, err := s.q.WireIDs(ctx, sqlcgen.WireIDsParams{GroupName: group, JobIds: ids})
	out := make(map[domain.JobID]int64, len(rows))
	for _, r := range rows {
		out[domain.JobID(r.JobID)] = r.WireID
	}
	return out, pgerr.Translate(err)
}

// Sweep looks at up to limit sends with log ids above after, and deletes those that need no longer be kept. It returns their number, and the log id after which the next call
// continues: 0 if that is not necessary. All processes may call it.
func (s *Store) Sweep(ctx context.Context, after int64, limit int) (next, deleted int64, err error) {
	r, err := s.q.Sweep(ctx, sqlcgen.SweepParams{After: after, MaxRows: int32(limit), KeptSeconds: Kept.Seconds()})
	return r.Next, r.Deleted, pgerr.Translate(err)
}

func toSends(rows []sqlcgen.GatewaySend) []Send {
	out := make([]Send, len(rows))
	for i, r := range rows {
		out[i] = Send{
			LogID: r.LogID, Group: r.GroupName, Instance: r.Instance, BootID: r.BootID,
			Offer: Offer{Attempt: Attempt{r.RunID, int(r.Attempt)}, Bind: int(r.Bind), WireID: r.WireID, Handler: r.Handler},
			State: State(r.State), AcceptedAt: r.AcceptedAt, SentAt: r.SentAt, KillReason: r.KillReason, EndedAt: r.EndedAt, Settled: r.ForgetAt != nil,
			Result: Result{Outcome: r.Outcome, Reason: r.Reason, Message: r.Message, Output: r.Output, Permanent: r.Permanent},
		}
	}
	return out
}
