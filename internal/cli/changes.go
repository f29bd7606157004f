package cli

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/internal/client"
)

type changesCmd struct {
	connection
	Object string `env:"BELFRY_CHANGES_OBJECT" placeholder:"OBJECT" help:"Only changes of this object, such as job/7 or group/default."`
	Actor  string `env:"BELFRY_CHANGES_ACTOR" placeholder:"NAME" help:"Only changes by this user or token, as the column BY shows it."`
	Action string `env:"BELFRY_CHANGES_ACTION" placeholder:"ACTION" help:"Only changes of this kind, such as job.update."`
	Limit  int    `env:"BELFRY_LIMIT" default:"50" help:"Maximum number of changes."`
}

func (*changesCmd) Help() string {
	return "The change log says who changed what, when and from where, newest first. Only admins can read it. The column FIELDS names the fields that " +
		"differ; -o json shows the states before and after the change. Secrets are masked.\n\nExamples:\n\n" +
		"    belfry changes\n    belfry changes --object job/7 --action job.update -o json"
}

func (c *changesCmd) Run(a *app, cl *client.Client) error {
	changes, err := cl.Changes(a.ctx, client.ChangeFilter{Object: c.Object, Actor: c.Actor, Action: c.Action}, c.Limit)
	if err != nil {
		return err
	}
	return a.print(c.Output, changes, func(t *table) {
		t.row("AT", "BY", "FROM", "ACTION", "OBJECT", "FIELDS")
		for _, ch := range changes {
			t.row(ch.At, shown(ch.Actor, 40), ch.Remote, ch.Action, shown(ch.Object, 60), shown(strings.Join(changedFields(ch.Before, ch.After), ", "), 100))
		}
	})
}

// changedFields names the fields that differ between the states of an object. There are none if the object did not exist before or after.
func changedFields(before, after json.RawMessage) []string {
	var was, is map[string]json.RawMessage
	if json.Unmarshal(before, &was) != nil || json.Unmarshal(after, &is) != nil || was == nil || is == nil {
		return nil
	}
	changed := map[string]bool{}
	for name := range was {
		changed[name] = !bytes.Equal(was[name], is[name])
	}
	for name := range is {
		changed[name] = !bytes.Equal(was[name], is[name])
	}
	maps.DeleteFunc(changed, func(_ string, differs bool) bool { return !differs })
	return slices.Sorted(maps.Keys(changed))
}
