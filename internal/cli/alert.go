package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/client"
)

type alertChannelCmd struct {
	connection
	List   channelListCmd   `cmd:"" help:"List alert channels."`
	Get    channelGetCmd    `cmd:"" help:"Show one alert channel."`
	Apply  channelApplyCmd  `cmd:"" help:"Create or replace alert channels from files."`
	Delete channelDeleteCmd `cmd:"" help:"Delete alert channels that no job uses."`
	Test   channelTestCmd   `cmd:"" help:"Deliver a test alert now and print the result."`
}

type channelListCmd struct{}

func (*channelListCmd) Help() string { return "Example:\n\n    belfry alert-channel list" }

func (c *channelListCmd) Run(a *app, parent *alertChannelCmd, cl *client.Client) error {
	channels, err := cl.AlertChannels(a.ctx, mostListed)
	if err != nil {
		return err
	}
	return a.print(parent.Output, channels, func(t *table) {
		t.row("NAME", "KIND", "LANGUAGE", "TO", "DESCRIPTION")
		for _, ch := range channels {
			t.row(ch.Name, string(ch.Kind), string(ch.Language), shown(target(&ch), 60), shown(ch.Description, 60))
		}
	})
}

// target returns the address that a channel delivers to.
func target(c *alert.Channel) string {
	if c.Email == nil {
		return c.URL
	}
	return strings.Join(c.Email.To, ", ")
}

type channelGetCmd struct {
	Name string `arg:"" help:"The channel's name."`
}

func (*channelGetCmd) Help() string {
	return "Secrets are masked. If you apply a file with masked secrets, the stored secrets stay unchanged.\n\nExample:\n\n    belfry alert-channel get ops -o yaml"
}

func (c *channelGetCmd) Run(a *app, parent *alertChannelCmd, cl *client.Client) error {
	ch, err := cl.AlertChannel(a.ctx, c.Name)
	if err != nil {
		return err
	}
	return a.print(parent.Output, ch, func(t *table) {
		t.pair("name", ch.Name)
		t.pair("kind", string(ch.Kind))
		t.pair("description", ch.Description)
		t.pair("language", string(ch.Language))
		t.pair("url", ch.URL)
		t.pair("secret", ch.Secret)
		if e := ch.Email; e != nil {
			t.pair("server", fmt.Sprintf("%s:%d (%s)", e.Host, e.Port, e.TLS))
			t.pair("username", e.Username)
			t.pair("from", e.From)
			t.pair("to", e.To)
		}
		t.pair("subject", shown(ch.Subject, 200))
		t.pair("text", shown(ch.Text, 200))
		t.pair("created", ch.CreatedAt)
		t.pair("updated", ch.UpdatedAt)
	})
}

type channelApplyCmd struct {
	Files []string `short:"f" name:"file" env:"BELFRY_FILES" required:"" placeholder:"FILE" help:"Files with channels in YAML or JSON; - is standard input."`
}

func (*channelApplyCmd) Help() string {
	return "A file holds one or several YAML documents, each a channel or a list of channels. The command creates or replaces the channel of each name. " +
		"If a file leaves out a secret, the stored secret stays unchanged.\n\nExample:\n\n    belfry alert-channel apply -f channels.yaml"
}

// channelApplied is one row of the output of alert-channel apply.
type channelApplied struct {
	Action string `json:"action"`
	Name   string `json:"name"`
	Source string `json:"source"`
	Error  string `json:"error,omitempty"`
}

func (c *channelApplyCmd) Run(a *app, parent *alertChannelCmd, cl *client.Client) error {
	var found []channelApplied
	var specs []map[string]any
	for _, file := range c.Files {
		in, err := a.readChannels(file)
		if err != nil {
			return err
		}
		for _, spec := range in {
			name, _ := spec["name"].(string)
			if name == "" {
				return fmt.Errorf("%s: a channel has no name", file)
			}
			found, specs = append(found, channelApplied{Name: name, Source: file}), append(specs, spec)
		}
	}
	if len(specs) == 0 {
		return errors.New("the files contain no channel")
	}
	failed := false
	for i, spec := range specs {
		r := &found[i]
		var err error
		if r.Action, err = a.applyChannel(cl, r.Name, spec); err != nil {
			if a.ctx.Err() != nil {
				return err
			}
			failed, r.Action, r.Error = true, refused, err.Error()
			a.printError(fmt.Errorf("%s: %s: %w", r.Source, r.Name, err))
		}
	}
	if err := a.print(parent.Output, found, func(t *table) {
		for _, r := range found {
			t.row(r.Action, shown(r.Name, 63), r.Source)
		}
	}); err != nil {
		return err
	}
	if failed {
		return errReported
	}
	return nil
}

// readChannels reads the channels of a file without checking their fields. The server checks them.
func (a *app) readChannels(file string) (specs []map[string]any, err error) {
	data, err := a.readFile(file)
	if err != nil {
		return nil, err
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var v any
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return specs, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %s", file, yaml.FormatError(err, false, false))
		}
		items, isList := v.([]any)
		if !isList && v != nil {
			items = []any{v}
		}
		for _, item := range items {
			spec, ok := item.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("%s: not an alert channel: expected a mapping with fields such as name, kind and url", file)
			}
			delete(spec, "created_at") // present in files that the server wrote
			delete(spec, "updated_at")
			specs = append(specs, spec)
		}
	}
}

// applyChannel creates or replaces a channel and returns which of these it did.
func (a *app) applyChannel(cl *client.Client, name string, spec map[string]any) (action string, err error) {
	before, err := cl.AlertChannel(a.ctx, name)
	var e *client.Error
	if errors.As(err, &e) && e.Status == http.StatusNotFound {
		_, err = cl.CreateAlertChannel(a.ctx, spec)
		return created, err
	}
	if err != nil {
		return "", err
	}
	after, err := cl.ReplaceAlertChannel(a.ctx, name, spec)
	if err == nil && sameChannel(before, after) && !hasSecrets(spec, before) {
		return unchanged, nil
	}
	return updated, err
}

// sameChannel reports whether two channels look the same.
func sameChannel(one, two alert.Channel) bool {
	one.UpdatedAt = two.UpdatedAt
	a, errOne := json.Marshal(one) //nolint:gosec // the server masks secrets
	b, errTwo := json.Marshal(two) //nolint:gosec // as above
	return errOne == nil && errTwo == nil && bytes.Equal(a, b)
}

// hasSecrets reports whether a spec contains secrets. Whether they differ from the stored ones is not visible, because the
// server masks those.
func hasSecrets(spec map[string]any, shown alert.Channel) bool {
	given := func(fields map[string]any, name, masked string) bool {
		v, ok := fields[name].(string)
		return ok && v != "" && v != masked
	}
	email, _ := spec["email"].(map[string]any)
	return given(spec, "url", shown.URL) || given(spec, "secret", alert.Masked) || given(email, "password", alert.Masked)
}

type channelDeleteCmd struct {
	Names []string `arg:"" name:"name" help:"Names of channels."`
}

func (*channelDeleteCmd) Help() string { return "Example:\n\n    belfry alert-channel delete ops" }

func (c *channelDeleteCmd) Run(a *app, parent *alertChannelCmd, cl *client.Client) error {
	return a.each(c.Names, func(name string) error {
		if err := cl.DeleteAlertChannel(a.ctx, name); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "%s deleted\n", printable(name))
		return nil
	})
}

type channelTestCmd struct {
	Name string `arg:"" help:"The channel's name."`
}

func (*channelTestCmd) Help() string {
	return "If the delivery fails, the exit code is 1.\n\nExample:\n\n    belfry alert-channel test ops"
}

func (c *channelTestCmd) Run(a *app, parent *alertChannelCmd, cl *client.Client) error {
	came, err := cl.TestAlertChannel(a.ctx, c.Name)
	if err != nil {
		return err
	}
	if err := a.print(parent.Output, came, func(t *table) {
		t.pair("delivered", came.Delivered)
		t.pair("detail", shown(came.Detail, 300))
		t.pair("took", fmt.Sprintf("%d ms", came.TookMS))
	}); err != nil {
		return err
	}
	if !came.Delivered {
		return fmt.Errorf("the test alert was not delivered: %s", came.Detail)
	}
	return nil
}

type alertCmd struct {
	connection
	List alertListCmd `cmd:"" help:"List alerts with their deliveries, newest first."`
}

type alertListCmd struct {
	Job   string `env:"BELFRY_JOB" placeholder:"JOB" help:"Only alerts of this job: its id, or group/name."`
	Group string `short:"g" env:"BELFRY_ALERT_GROUP" placeholder:"NAME" help:"Only alerts of this group."`
	Kind  string `env:"BELFRY_ALERT_KIND" enum:",failed,recovered,missed,late" default:"" help:"Only alerts of this kind: failed, recovered, missed or late."`
	State string `env:"BELFRY_ALERT_STATE" enum:",pending,delivered,failed" default:"" help:"Only alerts with a delivery in this state: pending, delivered or failed."`
	Limit int    `env:"BELFRY_LIMIT" default:"50" help:"Maximum number of alerts to list."`
}

func (*alertListCmd) Help() string {
	return "Each alert is listed with its delivery to every channel.\n\nExamples:\n\n    belfry alert list --job default/report\n    belfry alert list --state failed -o json"
}

func (c *alertListCmd) Run(a *app, parent *alertCmd, cl *client.Client) error {
	f := client.AlertFilter{Group: c.Group, Kind: c.Kind, State: c.State}
	if c.Job != "" {
		job, err := findJob(a.ctx, cl, c.Job)
		if err != nil {
			return err
		}
		f.JobID = job.ID
	}
	alerts, err := cl.Alerts(a.ctx, f, c.Limit)
	if err != nil {
		return err
	}
	return a.print(parent.Output, alerts, func(t *table) {
		t.row("ID", "AT", "KIND", "JOB", "COUNT", "CHANNEL", "DELIVERY", "TRIES", "ERROR")
		for _, x := range alerts {
			for _, d := range x.Deliveries {
				t.row(x.ID, x.At, string(x.Kind), shown(x.Group+"/"+x.Job, 80), x.Count, d.Channel, d.State, d.Tries, shown(d.Error, 80))
			}
		}
	})
}
