package store

import (
	"context"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/store/sqlcgen"
)

// classify sets the dispositions of results that match no current attempt, and stores the late ones.
func (w *settling) classify(ctx context.Context) error {
	if len(w.toClass) == 0 {
		return nil
	}
	ids := make([]domain.RunID, len(w.toClass))
	for j, i := range w.toClass {
		ids[j] = w.in[i].RunID
	}
	past, err := w.q.HistoryOutcomes(ctx, ids)
	if err != nil {
		return err
	}
	attempts, err := w.q.AttemptOutcomes(ctx, ids)
	if err != nil {
		return err
	}
	var late sqlcgen.InsertLateParams
	for _, i := range w.toClass {
		e := w.in[i]
		w.out.Dispositions[i] = w.disposition(e, past, attempts)
		if w.out.Dispositions[i] != engine.Late {
			continue
		}
		cleanText(&e)
		late.Ids = append(late.Ids, e.RunID)
		late.Attempts = append(late.Attempts, int32(e.Attempt))
		late.Instances = append(late.Instances, e.Instance)
		late.Outcomes = append(late.Outcomes, string(e.Outcome))
		late.Reasons = append(late.Reasons, string(e.Reason))
		late.Messages = append(late.Messages, e.Message)
		late.Outputs = append(late.Outputs, e.Output)
		late.StartedAts = append(late.StartedAts, epoch(e.StartedAt))
		late.FinishedAts = append(late.FinishedAts, epoch(e.FinishedAt))
	}
	if len(late.Ids) == 0 {
		return nil
	}
	return w.q.InsertLate(ctx, late)
}

func (w *settling) disposition(e engine.Ended, past []sqlcgen.HistoryOutcomesRow, attempts []sqlcgen.AttemptOutcomesRow) engine.Disposition {
	if e.Group == "" {
		return engine.Raced // a reconciler's finding that is outdated
	}
	known := false
	for _, h := range past {
		if h.ID != e.RunID {
			continue
		}
		if h.GroupName != e.Group {
			return engine.WrongGroup
		}
		known = true
	}
	if r, live := w.liveRows[e.RunID]; live {
		if r.GroupName != e.Group {
			return engine.WrongGroup
		}
		if w.matched[e.RunID] && int(r.Attempt) == e.Attempt && orZero(r.Instance) == e.Instance && orZero(r.BootID) == e.BootID {
			return engine.Repeat
		}
		known = true
	}
	for _, a := range attempts {
		if a.RunID == e.RunID && int(a.Attempt) == e.Attempt {
			return repeatOrLate(e, a.Instance, a.BootID, a.Outcome, a.Reason)
		}
	}
	// This comes after the attempts: a run that was killed while it waited for a retry has that attempt in both tables.
	for _, h := range past {
		if h.ID == e.RunID && int(h.Attempt) == e.Attempt {
			return repeatOrLate(e, h.Instance, h.BootID, h.State, h.Reason)
		}
	}
	switch {
	case !known:
		return engine.UnknownRun
	case e.Outcome == domain.OutcomeUnstarted:
		return engine.Repeat
	}
	return engine.Late
}

// repeatOrLate distinguishes a result that was settled before from a result whose attempt was ended without it.
func repeatOrLate(e engine.Ended, instance, boot, outcome, reason string) engine.Disposition {
	same := string(e.Outcome) == outcome || (outcome == string(domain.Cancelled) && e.Outcome != domain.OutcomeSucceeded)
	if e.Outcome == domain.OutcomeUnstarted || (instance == e.Instance && boot == e.BootID && same && reason != string(domain.ReasonLost)) {
		return engine.Repeat
	}
	return engine.Late
}
