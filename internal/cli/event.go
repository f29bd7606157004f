package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
)

type eventCmd struct {
	connection
	Send eventSendCmd `cmd:"" help:"Send an event."`
	List eventListCmd `cmd:"" help:"List events, newest first."`
	Get  eventGetCmd  `cmd:"" help:"Show one event and the result of each trigger."`
}

type eventSendCmd struct {
	Name string `arg:"" help:"The event's name, such as orders.created."`
	Data string `short:"d" env:"BELFRY_EVENT_DATA" xor:"data" placeholder:"JSON" help:"The event's data; by default null."`
	File string `short:"f" env:"BELFRY_EVENT_FILE" xor:"data" placeholder:"FILE" help:"A file with the event's data; - is standard input."`
	Key  string `env:"BELFRY_EVENT_KEY" placeholder:"KEY" help:"Idempotency key: a second event with the same key has no effect."`
}

func (*eventSendCmd) Help() string {
	return "The command prints the event's id and the result of each trigger for events of this name.\n\nExamples:\n\n" +
		"    belfry event send orders.created -d '{\"id\": 7, \"amount\": 120.5}' --key order-7\n    belfry event send stock.counted -f stock.json"
}

func (c *eventSendCmd) Run(a *app, parent *eventCmd, cl *client.Client) error {
	data := []byte("null")
	switch {
	case c.Data != "":
		data = []byte(c.Data)
	case c.File != "":
		var err error
		if data, err = a.readFile(c.File); err != nil {
			return err
		}
	}
	if !json.Valid(data) {
		return &usageError{"the data is not JSON; put quotes around a text: -d '\"text\"'"}
	}
	sent, err := cl.SendEvent(a.ctx, c.Name, data, c.Key)
	if err != nil {
		return err
	}
	if sent.Repeated {
		fmt.Fprintln(a.stderr, "This event was sent before. Its result was:")
	}
	return a.print(parent.Output, sent, func(t *table) {
		t.row(sent.EventID)
		deliveries(t, sent.Deliveries)
	})
}

// deliveries prints the result of each trigger.
func deliveries(t *table, all []event.Delivery) {
	for _, d := range all {
		run := ""
		if d.RunID != nil {
			run = d.RunID.String()
		}
		t.row(d.Outcome, fmt.Sprintf("trigger %d (%s)", d.TriggerID, d.Name), fmt.Sprintf("job %d", d.JobID), run+shown(d.Why, 120))
	}
}

type eventListCmd struct {
	Name  string        `env:"BELFRY_EVENT_NAME" placeholder:"NAME" help:"Only events whose name matches this name or pattern, such as 'orders.>'."`
	Since time.Duration `env:"BELFRY_EVENT_SINCE" placeholder:"DURATION" help:"Only events of the last DURATION, such as 2h."`
	Limit int           `short:"n" env:"BELFRY_EVENT_LIMIT" default:"50" help:"Maximum number of events to list."`
}

func (*eventListCmd) Help() string {
	return "Examples:\n\n    belfry event list\n    belfry event list --name 'orders.>' --since 2h -o json"
}

func (c *eventListCmd) Run(a *app, parent *eventCmd, cl *client.Client) error {
	if c.Limit < 1 || c.Since < 0 {
		return &usageError{"--limit must be at least 1, and --since must not be negative"}
	}
	f := client.EventFilter{Name: c.Name}
	if c.Since > 0 {
		f.From = domain.AtPtr(time.Now().Add(-c.Since))
	}
	events, err := cl.Events(a.ctx, f, c.Limit)
	if err != nil {
		return err
	}
	return a.print(parent.Output, events, func(t *table) {
		t.row("RECEIVED", "NAME", "VIA", "BYTES", "FIRED", "NOT", "ID")
		for _, e := range events {
			fired := len(e.Runs())
			t.row(e.ReceivedAt, e.Name, e.Via, e.DataBytes, fired, len(e.Deliveries)-fired, e.ID)
		}
	})
}

type eventGetCmd struct {
	ID string `arg:"" help:"The event's id, from belfry event list or a run's event_id."`
}

func (*eventGetCmd) Help() string {
	return "Example:\n\n    belfry event get 019a9d2c-7b40-7000-8000-0123456789ab"
}

func (c *eventGetCmd) Run(a *app, parent *eventCmd, cl *client.Client) error {
	id, err := domain.ParseRunID(c.ID)
	if err != nil {
		return &usageError{fmt.Sprintf("%q is not the id of an event", c.ID)}
	}
	e, err := cl.Event(a.ctx, id)
	if err != nil {
		return err
	}
	return a.print(parent.Output, e, func(t *table) {
		t.pair("id", e.ID)
		t.pair("name", e.Name)
		t.pair("source", e.Source)
		t.pair("type", e.Type)
		t.pair("subject", e.Subject)
		t.pair("key", e.Key)
		t.pair("time", e.Time)
		t.pair("received", e.ReceivedAt)
		t.pair("via", e.Via)
		t.pair("sent by", e.SentBy)
		t.pair("bytes", e.DataBytes)
		t.pair("data", shown(string(bytes.TrimSpace(e.Data)), 1000))
		deliveries(t, e.Deliveries)
	})
}

type deadLetterCmd struct {
	connection
	List   deadLetterListCmd   `cmd:"" help:"List dead letters: events last, otherwise oldest first."`
	Get    deadLetterGetCmd    `cmd:"" help:"Show one dead letter."`
	Replay deadLetterReplayCmd `cmd:"" help:"Publish dead letters again."`
	Delete deadLetterDeleteCmd `cmd:"" help:"Delete dead letters permanently."`
}

type deadLetterListCmd struct {
	Kind  string `env:"BELFRY_DEAD_LETTER_KIND" enum:",result,log,event,heartbeat" default:"" help:"Only dead letters of this kind: result, log, event or heartbeat."`
	Group string `short:"g" env:"BELFRY_DEAD_LETTER_GROUP" placeholder:"NAME" help:"Only dead letters of this group. For events, the name of the event."`
}

func (*deadLetterListCmd) Help() string {
	return "Dead letters are messages that could not be processed. They are kept for 14 days.\n\nExample:\n\n    belfry dead-letter list --kind event\n    belfry dead-letter list --kind result --group billing"
}

func (c *deadLetterListCmd) Run(a *app, parent *deadLetterCmd, cl *client.Client) error {
	letters, err := cl.DeadLetters(a.ctx, c.Kind, c.Group, mostListed)
	if err != nil {
		return err
	}
	return a.print(parent.Output, letters, func(t *table) {
		t.row("SEQ", "KIND", "AT", "SUBJECT", "BYTES", "ERROR")
		for _, l := range letters {
			t.row(l.Seq, l.Kind, l.At, l.Subject, l.Bytes, shown(l.Error, 100))
		}
	})
}

type deadLetterGetCmd struct {
	Seq uint64 `arg:"" help:"The dead letter's number, from belfry dead-letter list."`
}

func (*deadLetterGetCmd) Help() string {
	return "Example:\n\n    belfry dead-letter get 12 -o json"
}

func (c *deadLetterGetCmd) Run(a *app, parent *deadLetterCmd, cl *client.Client) error {
	l, err := cl.DeadLetter(a.ctx, c.Seq)
	if err != nil {
		return err
	}
	return a.print(parent.Output, l, func(t *table) {
		t.pair("seq", l.Seq)
		t.pair("kind", l.Kind)
		t.pair("at", l.At)
		t.pair("subject", l.Subject)
		t.pair("bytes", l.Bytes)
		t.pair("error", l.Error)
		for name, values := range l.Headers {
			t.pair("header "+printable(name), strings.Join(values, ", "))
		}
		if l.Data == "" && len(l.DataBase64) > 0 {
			t.pair("data", "not text; use -o json to print it as base64")
		}
		t.pair("data", shown(l.Data, 4000))
	})
}

type deadLetterReplayCmd struct {
	Seqs []uint64 `arg:"" name:"seq" help:"Numbers of dead letters."`
}

func (*deadLetterReplayCmd) Help() string {
	return "The command publishes each message again on its original subject and removes the dead letter. If the message still cannot be processed, it becomes a new dead letter. " +
		"A message that has already taken effect does not take effect twice.\n\nExample:\n\n    belfry dead-letter replay 12 13"
}

func (c *deadLetterReplayCmd) Run(a *app, cl *client.Client) error {
	return a.eachLetter(c.Seqs, "replayed", func(seq uint64) error { return cl.ReplayDeadLetter(a.ctx, seq) })
}

type deadLetterDeleteCmd struct {
	Seqs []uint64 `arg:"" name:"seq" help:"Numbers of dead letters."`
}

func (*deadLetterDeleteCmd) Help() string {
	return "Example:\n\n    belfry dead-letter delete 12"
}

func (c *deadLetterDeleteCmd) Run(a *app, cl *client.Client) error {
	return a.eachLetter(c.Seqs, "deleted", func(seq uint64) error { return cl.DeleteDeadLetter(a.ctx, seq) })
}

func (a *app) eachLetter(seqs []uint64, done string, do func(uint64) error) error {
	refs := make([]string, len(seqs))
	bySeq := make(map[string]uint64, len(seqs))
	for i, seq := range seqs {
		refs[i] = fmt.Sprint(seq)
		bySeq[refs[i]] = seq
	}
	return a.each(refs, func(ref string) error {
		if err := do(bySeq[ref]); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "%s %s\n", ref, done)
		return nil
	})
}
