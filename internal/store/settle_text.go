package store

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// clean limits an instance's report to the bounds of the contract, and its instants to the run's lifetime: they come
// from another machine's clock, and a child's run id begins with its parent's end. A zero createdAt means that the
// creation time is not known yet; the statement that writes the row then applies that limit.
func clean(e *engine.Ended, now, createdAt time.Time) {
	cleanText(e)
	within := func(t time.Time) time.Time {
		switch {
		case t.IsZero() || t.After(now):
			return now
		case t.Before(createdAt):
			return createdAt.UTC()
		}
		return t
	}
	e.FinishedAt = within(e.FinishedAt)
	if !e.StartedAt.IsZero() {
		e.StartedAt = within(e.StartedAt)
	}
}

// cleanText sets the message of an end that the engine explains. It makes texts valid for Postgres, and cuts them to
// their maximum lengths.
func cleanText(e *engine.Ended) {
	e.Message = cut(e.Said(), domain.MaxMessageBytes)
	e.Output = cut(e.Output, domain.MaxOutputBytes)
	e.Reason = domain.Reason(cut(string(e.Reason), 64))
	e.Outcome = domain.Outcome(cut(string(e.Outcome), 64))
	e.Instance = cut(e.Instance, 128)
}

const cutMark = "\n… cut"

func cut(text string, limit int) string {
	if strings.IndexByte(text, 0) >= 0 {
		text = strings.ReplaceAll(text, "\x00", "�")
	}
	text = strings.ToValidUTF8(text, "�")
	if len(text) <= limit {
		return text
	}
	text = text[:limit-len(cutMark)]
	for len(text) > 0 && !utf8.ValidString(text[max(0, len(text)-utf8.UTFMax):]) {
		text = text[:len(text)-1]
	}
	return text + cutMark
}
