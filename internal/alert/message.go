package alert

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

// Message is the content of an alert. Webhooks and the list of alerts use its JSON form.
type Message struct {
	ID    string           `json:"id" doc:"Id of the alert, the same in every delivery and channel"`
	Kind  domain.AlertKind `json:"kind"`
	At    domain.Instant   `json:"at" doc:"When the alert was created"`
	JobID domain.JobID     `json:"job_id,omitempty"`
	Job   string           `json:"job"`
	Group string           `json:"group"`

	RunID       string          `json:"run_id,omitempty"`
	URL         string          `json:"url,omitempty" doc:"URL of the run, or of the job, in the console"`
	TraceID     string          `json:"trace_id,omitempty" doc:"Id of the run's trace, as in the schema Run"`
	TraceURL    string          `json:"trace_url,omitempty" doc:"URL of the run's trace, if the setting --trace-url is given"`
	RunbookURL  string          `json:"runbook_url,omitempty" doc:"URL of the job's runbook"`
	State       domain.State    `json:"state,omitempty"`
	Cause       domain.Cause    `json:"cause,omitempty"`
	Reason      domain.Reason   `json:"reason,omitempty"`
	Message     string          `json:"message,omitempty"`
	Parts       Parts           `json:"message_parts,omitempty" doc:"The parts of the message, as in the schema Run"`
	Instance    string          `json:"instance,omitempty"`
	Attempt     int             `json:"attempt,omitempty"`
	MaxAttempts int             `json:"max_attempts,omitempty"`
	Shards      int             `json:"shards,omitempty" doc:"Number of shards of a broadcast"`
	ShardsBad   int             `json:"shards_failed,omitempty" doc:"Number of shards of a broadcast that did not succeed"`
	FireTime    *domain.Instant `json:"fire_time,omitempty"`
	LocalTime   string          `json:"fire_time_local,omitempty" doc:"The fire time in the job's time zone"`
	LatenessMS  int64           `json:"lateness_ms,omitempty"`

	Count  int64            `json:"count,omitempty" doc:"Number of failed or late runs or of missed fire times, including those without an alert of their own; for a recovery, the number of failed runs before it"`
	Since  *domain.Instant  `json:"since,omitempty" doc:"Time of the first event that count includes"`
	Missed *engine.MissedAt `json:"missed,omitempty"`
	Log    []string         `json:"log,omitempty" doc:"The last lines of the run's log"`
}

// Parts are the parts of a message, as in domain.Run.
type Parts = []explain.Explanation

// Composed is a message with the channels that deliver it.
type Composed struct {
	Message
	Channels []string
	LogComes bool // more lines of the run's log may still arrive
}

// The bounds of a message.
const (
	MaxLogLines   = 20
	maxLineRunes  = 300
	maxMessage    = 2000 // runes
	maxFieldRunes = 200
)

// Test returns the message that tests a channel.
func Test(id string, now time.Time, consoleURL string) Message {
	at := domain.At(now)
	return Message{
		ID: id, Kind: domain.AlertTest, At: at, Job: "test", Group: "test", URL: consoleURL,
		Message: "If you can read this, the channel works.", Count: 1, Since: &at,
	}
}

// Bounded returns the message with its texts shortened and without control characters. Secrets in the run's message are
// masked, because a channel may have more readers than the job.
func (m Message) Bounded() Message {
	m.Job, m.Group, m.Instance = tidy(m.Job, maxFieldRunes), tidy(m.Group, maxFieldRunes), tidy(m.Instance, maxFieldRunes)
	m.RunbookURL = tidy(m.RunbookURL, domain.MaxURL)
	m.Message = tidyLines(domain.Mask(m.Message), maxMessage)
	m.Parts = slices.Clone(m.Parts)
	for i := range m.Parts {
		m.Parts[i].Text = tidyLines(domain.Mask(m.Parts[i].Text), maxMessage)
	}
	log := make([]string, 0, MaxLogLines)
	for _, l := range m.Log[max(0, len(m.Log)-MaxLogLines):] {
		log = append(log, tidy(l, maxLineRunes))
	}
	m.Log = log
	if m.Missed != nil {
		missed := *m.Missed
		missed.Why = tidy(missed.Why, maxFieldRunes)
		m.Missed = &missed
	}
	return m
}

// tidyLines applies tidy to each line of a text.
func tidyLines(s string, most int) string {
	lines := strings.Split(cut(s, most), "\n")
	for i, l := range lines {
		lines[i] = tidy(l, most)
	}
	return strings.Join(lines, "\n")
}

// tidy returns s as one line, shortened to most characters. It removes characters that would change the appearance of the
// surrounding text: control characters, terminal colour codes, and marks that change the text direction.
func tidy(s string, most int) string {
	s = ansi.ReplaceAllString(s, "")
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\u2028' || r == '\u2029':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError:
			return -1
		}
		return r
	}, s)
	return cut(s, most)
}

func cut(s string, most int) string {
	if len(s) <= most || utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// headline returns a short description of the event, for subjects.
func headline(m *Message, lang Language) string {
	zh := lang == Chinese
	n := m.Count
	switch m.Kind {
	case domain.AlertFailed:
		if n > 1 {
			return words(zh, "failed %d times", "失败 %d 次", n)
		}
		return words(zh, "failed", "失败")
	case domain.AlertRecovered:
		return words(zh, "recovered", "已恢复")
	case domain.AlertMissed:
		if n > 1 {
			return words(zh, "missed %d fire times", "错过 %d 次触发", n)
		}
		return words(zh, "missed a fire time", "错过一次触发")
	case domain.AlertLate:
		if n > 1 {
			return words(zh, "started late %d times", "延迟启动 %d 次", n)
		}
		return words(zh, "started late", "延迟启动")
	case domain.AlertTest:
		return words(zh, "test alert", "测试告警")
	}
	return string(m.Kind)
}

func words(zh bool, en, cn string, args ...any) string {
	if zh {
		return fmt.Sprintf(cn, args...)
	}
	return fmt.Sprintf(en, args...)
}
