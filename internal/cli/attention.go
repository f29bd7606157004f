package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/outage"
)

type attentionCmd struct {
	connection
	List attentionListCmd `cmd:"" default:"1" help:"List what needs attention."`
	Ack  attentionAckCmd  `cmd:"" help:"Acknowledge items."`
}

type attentionListCmd struct{}

func (*attentionListCmd) Help() string {
	return "The list begins with the servers and roles of the engine that are missing, each with its runbook; these are listed also while Postgres is unavailable. " +
		"Then it has failing jobs, groups without executors, backlogs, missed fire times, alerts that were not delivered, and dead letters.\n\n" +
		"Examples:\n\n    belfry attention\n    belfry attention list -o json"
}

func (c *attentionListCmd) Run(a *app, parent *attentionCmd, cl *client.Client) error {
	list, err := cl.Attention(a.ctx)
	if err != nil {
		return err
	}
	if list.Truncated {
		fmt.Fprintln(a.stderr, "The list is not complete: there are too many items.")
	}
	if len(list.Unavailable) > 0 {
		fmt.Fprintln(a.stderr, "Not available:", strings.Join(list.Unavailable, ", "))
	}
	return a.print(parent.Output, list, func(t *table) {
		t.missing(list.Items)
		t.row("ID", "GROUP", "JOB", "SINCE", "COUNT", "TEXT", "CHANGED", "ACKNOWLEDGED")
		for _, i := range list.Items {
			if isMissing(i) {
				continue
			}
			count := fmt.Sprint(i.Count)
			if i.AtLeast {
				count += "+"
			}
			t.row(i.ID, i.Group, shown(i.JobName, 40), i.Since, count, shown(i.Text, 100), shown(changesText(i.Changes), 120), ackText(i.Acknowledged))
		}
	})
}

// isMissing reports whether an item is about the servers and roles of the engine.
func isMissing(i client.AttentionItem) bool {
	return slices.Contains(outage.Kinds, outage.Kind(i.Kind))
}

// missing writes the servers and roles that are missing, each with its runbook. They come first, because they can be the cause of everything else.
func (t *table) missing(items []client.AttentionItem) {
	for _, i := range items {
		if !isMissing(i) {
			continue
		}
		head := i.ID
		if i.Since != nil {
			head += ", since " + people(i.Since.Time)
		}
		if k := i.Acknowledged; k != nil {
			head += ", acknowledged by " + ackText(k)
		}
		t.row(head)
		t.row("  " + i.Text)
		t.row("  " + i.RunbookURL)
		fmt.Fprintln(t.w)
	}
}

// changesText says what changed since a job succeeded.
func changesText(changes []explain.Explanation) string {
	texts := make([]string, len(changes))
	for i, c := range changes {
		texts[i] = c.Text
	}
	return strings.Join(texts, "; ")
}

// ackText says who acknowledged an item, and why.
func ackText(k *client.AttentionAck) string {
	if k == nil {
		return ""
	}
	text := k.By
	if k.Until != nil {
		text += " until " + people(k.Until.Time)
	}
	if k.Note != "" {
		text += ": " + shown(k.Note, 60)
	}
	return text
}

type attentionAckCmd struct {
	Items []string      `arg:"" name:"item" help:"Ids of items, such as job_failing:17."`
	Note  string        `env:"BELFRY_ATTENTION_NOTE" placeholder:"TEXT" help:"What is being done about it."`
	For   time.Duration `env:"BELFRY_ATTENTION_FOR" placeholder:"DURATION" help:"End of the acknowledgement, from now, such as 8h. By default, it ends when the cause changes."`
}

func (*attentionAckCmd) Help() string {
	return "An acknowledgement marks an item, and silences no alert.\n\nExample:\n\n    belfry attention ack job_failing:17 --note \"the disk is being replaced\" --for 8h"
}

func (c *attentionAckCmd) Run(a *app, cl *client.Client) error {
	if c.For < 0 {
		return &usageError{"--for must be positive, such as 8h"}
	}
	var until *domain.Instant
	if c.For > 0 {
		until = domain.AtPtr(time.Now().Add(c.For))
	}
	return a.each(c.Items, func(id string) error {
		item, err := cl.Acknowledge(a.ctx, id, c.Note, until)
		if err == nil {
			fmt.Fprintf(a.stdout, "%s acknowledged\n", printable(item.ID))
		}
		return err
	})
}
