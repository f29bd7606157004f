// Package alerts is the REST API of alert channels, and of the alerts that were sent through them.
package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/api/visible"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/alerts"
)

// API serves alert channels and alerts. All fields must be set.
type API struct {
	Store   Store
	Visible *visible.Reader
	Audit   *rest.Audit
}

// Store keeps alert channels and alerts. Channels come with their secrets.
type Store interface {
	Channels(ctx context.Context, after string, limit int) ([]alert.Channel, error)
	Channel(ctx context.Context, name string) (alert.Channel, error)
	CreateChannel(ctx context.Context, c alert.Channel) (alert.Channel, error)
	UpdateChannel(ctx context.Context, name string, edit func(*alert.Channel) error) (before, after alert.Channel, err error)
	// DeleteChannel deletes a channel. Conflict: jobs use it.
	DeleteChannel(ctx context.Context, name string) (alert.Channel, error)
	ChannelsFor(ctx context.Context, group string, names []string) ([]string, error)
	// Test delivers one test alert now. The answer and the error are texts for people.
	Test(ctx context.Context, c alert.Channel) (answer string, err error)
	Alerts(ctx context.Context, f alerts.Filter) ([]alerts.AlertEntry, error)
}

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Alerts"
	rest.Register(r, rest.Operation{Method: "GET", Path: "/alert-channels", Tag: tag, Summary: "List alert channels", Needs: account.Admin}, a.channels)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/alert-channels", Tag: tag, Summary: "Create an alert channel", Needs: account.Admin,
		Status: 201, Body: rest.BodyOf[ChannelBody]()}, a.createChannel)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/alert-channels/{name}", Tag: tag, Summary: "Show an alert channel", Needs: account.Admin,
		Description: "Secrets are masked. If a change contains a masked secret, the stored secret stays as it is."}, a.channel)
	rest.Register(r, rest.Operation{Method: "PUT", Path: "/alert-channels/{name}", Tag: tag, Summary: "Replace an alert channel", Needs: account.Admin,
		Description: "Secrets that are left out stay as they are. The password stays only if the server and the user name do not change.", Body: rest.BodyOf[ChannelBody]()}, a.putChannel)
	rest.Register(r, rest.Operation{Method: "PATCH", Path: "/alert-channels/{name}", Tag: tag, Summary: "Change an alert channel", Needs: account.Admin,
		Description: "A JSON merge patch (RFC 7396).", Body: rest.DerivedBody[ChannelBody]("ChannelPatch")}, a.patchChannel)
	rest.Register(r, rest.Operation{Method: "DELETE", Path: "/alert-channels/{name}", Tag: tag, Summary: "Delete an alert channel", Needs: account.Admin,
		Description: "If jobs use the channel, the answer is 409."}, a.deleteChannel)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/alert-channels/{name}/test", Tag: tag, Summary: "Test an alert channel", Needs: account.Admin,
		Description: "Tries once to deliver a test alert, and answers with the result."}, a.testChannel)
	rest.Register(r, rest.Operation{Method: "GET", Path: "/alerts", Tag: tag, Summary: "List alerts and their deliveries", Needs: account.Viewer,
		Description: "Newest first. Only admins see why a delivery failed."}, a.list)
}

// ChannelBody is the body that creates or replaces a channel.
type ChannelBody struct {
	Name        string         `json:"name"`
	Kind        alert.Kind     `json:"kind"`
	Description string         `json:"description,omitempty"`
	Language    alert.Language `json:"language,omitempty" doc:"The language of the default text: en (default) or zh"`
	Subject     string         `json:"subject,omitempty" doc:"A Go template of the subject; empty for the default"`
	Text        string         `json:"text,omitempty" doc:"A Go template of the text; empty for the default"`
	URL         string         `json:"url,omitempty" doc:"For all kinds except email. If an update leaves it out, it stays as it is"`
	Secret      string         `json:"secret,omitempty" doc:"The key that signs requests of the kinds webhook, dingtalk and feishu. If an update leaves it out, it stays as it is"`
	Email       *emailBody     `json:"email,omitempty" doc:"For the kind email"`
	Groups      []string       `json:"groups,omitempty" doc:"Only jobs of these groups may be given the channel, except by admins. Default: jobs of all groups"`
}

type emailBody struct {
	Host     string    `json:"host"`
	Port     int       `json:"port,omitempty" doc:"Default: 587 with starttls, 465 with tls, 25 without"`
	TLS      alert.TLS `json:"tls,omitempty" doc:"starttls (default), tls or none"`
	Username string    `json:"username,omitempty" doc:"The user name at the mail server; empty: no log-in"`
	Password string    `json:"password,omitempty" doc:"If an update leaves it out and keeps the server and the user name, it stays as it is"`
	From     string    `json:"from"`
	To       []string  `json:"to"`
}

func (b *ChannelBody) channel() alert.Channel {
	c := alert.Channel{
		Name: b.Name, Kind: b.Kind, Description: b.Description, Language: b.Language, Subject: b.Subject, Text: b.Text, URL: b.URL, Secret: b.Secret, Groups: b.Groups,
	}
	if e := b.Email; e != nil {
		c.Email = &alert.Email{Host: e.Host, Port: e.Port, TLS: e.TLS, Username: e.Username, Password: e.Password, From: e.From, To: e.To}
	}
	return c
}

// BodyOf returns the body that creates the channel.
func BodyOf(c alert.Channel) ChannelBody {
	b := ChannelBody{
		Name: c.Name, Kind: c.Kind, Description: c.Description, Language: c.Language, Subject: c.Subject, Text: c.Text, URL: c.URL, Secret: c.Secret, Groups: c.Groups,
	}
	if e := c.Email; e != nil {
		b.Email = &emailBody{Host: e.Host, Port: e.Port, TLS: e.TLS, Username: e.Username, Password: e.Password, From: e.From, To: e.To}
	}
	return b
}

// channelTest is the result of a test alert.
type channelTest struct {
	Delivered bool   `json:"delivered"`
	Detail    string `json:"detail" doc:"The answer of the channel, or the reason why delivery failed"`
	TookMS    int64  `json:"took_ms"`
}

// ChannelPath names an alert channel in the path.
type ChannelPath struct {
	Name string `path:"name"`
}

type alertsInput struct {
	rest.List
	Group string `query:"group"`
	JobID int64  `query:"job_id" minimum:"1"`
	Kind  string `query:"kind" enum:"failed,recovered,missed,late" doc:"The cause of the alert"`
	State string `query:"state" enum:"pending,delivered,failed" doc:"The state of its delivery to any channel"`
}

func (a *API) channels(ctx context.Context, _ auth.Identity, in *struct{ rest.List }) (*rest.Output[rest.Page[alert.Channel]], error) {
	after, err := rest.DecodeCursor("channel", in.Cursor)
	if err != nil {
		return nil, err
	}
	found, err := a.Store.Channels(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	for i := range found {
		found[i] = found[i].Shown()
	}
	return rest.Answer(rest.Cut(found, in.Limit, func(c alert.Channel) string { return rest.EncodeCursor("channel", c.Name) })), nil
}

func (a *API) channel(ctx context.Context, _ auth.Identity, in *ChannelPath) (*rest.Output[alert.Channel], error) {
	c, err := a.Store.Channel(ctx, in.Name)
	return rest.Answer(c.Shown()), err
}

func (a *API) createChannel(ctx context.Context, id auth.Identity, in *struct{ rest.JSONBody }) (*rest.Output[alert.Channel], error) {
	var b ChannelBody
	shape := in.Decode(&b)
	c := b.channel()
	c.Normalize()
	if err := strict.AlsoFaulty(shape, c.Validate()); err != nil {
		return nil, err
	}
	if err := a.checkGroups(ctx, id, c.Groups, nil); err != nil {
		return nil, err
	}
	made, err := a.Store.CreateChannel(ctx, c)
	if err != nil {
		return nil, err
	}
	made = made.Shown()
	a.Audit.Record(ctx, id, "alert_channel.create", "alert-channel/"+made.Name, nil, made)
	return rest.Answer(made), nil
}

func (a *API) putChannel(ctx context.Context, id auth.Identity, in *struct {
	ChannelPath
	rest.JSONBody
}) (*rest.Output[alert.Channel], error) {
	return a.changeChannel(ctx, id, in.Name, func(before alert.Channel) (alert.Channel, error) {
		b := ChannelBody{Name: in.Name}
		err := in.Decode(&b)
		return b.channel(), err
	})
}

func (a *API) patchChannel(ctx context.Context, id auth.Identity, in *struct {
	ChannelPath
	rest.JSONBody
}) (*rest.Output[alert.Channel], error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	var blank ChannelBody
	sound, shape := strict.Decode(in.RawBody, &blank)
	if sound == nil {
		return nil, shape
	}
	return a.changeChannel(ctx, id, in.Name, func(before alert.Channel) (alert.Channel, error) {
		var b ChannelBody
		if err := json.Unmarshal(strict.MergePatch(strict.Encode(BodyOf(before.Shown())), sound), &b); err != nil {
			return b.channel(), shape
		}
		return b.channel(), shape
	})
}

// changeChannel replaces a channel by the result of write. An error of write means that fields of the body are unknown or have
// a wrong type.
func (a *API) changeChannel(ctx context.Context, id auth.Identity, name string, write func(before alert.Channel) (alert.Channel, error)) (*rest.Output[alert.Channel], error) {
	before, after, err := a.Store.UpdateChannel(ctx, name, func(c *alert.Channel) error {
		changed, shape := write(*c)
		var f domain.Faults
		if changed.Name != name {
			f.Add("name", "cannot be changed, because jobs refer to the channel by its name")
			changed.Name = name
		}
		changed.Keep(*c)
		changed.Normalize()
		f.AddAll("body", changed.Validate())
		if err := strict.AlsoFaulty(shape, f.Err("the channel is not valid")); err != nil {
			return err
		}
		if err := a.checkGroups(ctx, id, changed.Groups, c.Groups); err != nil {
			return err
		}
		changed.CreatedAt = c.CreatedAt
		*c = changed
		return nil
	})
	if err != nil {
		return nil, err
	}
	after = after.Shown()
	a.Audit.Record(ctx, id, "alert_channel.update", "alert-channel/"+name, before.Shown(), after)
	return rest.Answer(after), nil
}

// checkGroups refuses groups that do not exist. It accepts the groups in has: the channel already names them, so they existed
// once.
func (a *API) checkGroups(ctx context.Context, id auth.Identity, groups, has []string) error {
	var f domain.Faults
	for i, g := range groups {
		if slices.Contains(has, g) {
			continue
		}
		_, err := a.Visible.Group(ctx, id, g)
		if err != nil && domain.CodeOf(err) != domain.NotFound {
			return err
		}
		if err != nil {
			f.Add(fmt.Sprintf("groups[%d]", i), visible.UnknownGroupText(g))
		}
	}
	return f.Err("the channel is not valid")
}

func (a *API) deleteChannel(ctx context.Context, id auth.Identity, in *ChannelPath) (*struct{}, error) {
	before, err := a.Store.DeleteChannel(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	a.Audit.Record(ctx, id, "alert_channel.delete", "alert-channel/"+in.Name, before.Shown(), nil)
	return nil, nil
}

func (a *API) testChannel(ctx context.Context, id auth.Identity, in *ChannelPath) (*rest.Output[channelTest], error) {
	c, err := a.Store.Channel(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	detail, err := a.Store.Test(ctx, c)
	out := channelTest{Delivered: err == nil, Detail: detail, TookMS: time.Since(begun).Milliseconds()}
	if err != nil {
		out.Detail = err.Error()
	}
	a.Audit.Record(ctx, id, "alert_channel.test", "alert-channel/"+in.Name, nil, out)
	return rest.Answer(out), nil
}

func (a *API) list(ctx context.Context, id auth.Identity, in *alertsInput) (*rest.Output[rest.Page[alerts.AlertEntry]], error) {
	before, err := rest.DecodeNumberCursor("alert", in.Cursor)
	if err != nil {
		return nil, err
	}
	if in.Group != "" {
		if err := a.Visible.CheckGroup(ctx, id, in.Group); err != nil {
			return nil, err
		}
	}
	found, err := a.Store.Alerts(ctx, alerts.Filter{
		Only: id.Only(), Group: in.Group, Job: domain.JobID(in.JobID), Kind: domain.AlertKind(in.Kind), State: alerts.DeliveryState(in.State),
		Before: before, Limit: in.Limit + 1,
	})
	if err != nil {
		return nil, err
	}
	if !id.Role.AtLeast(account.Admin) {
		for i := range found {
			found[i].Deliveries = slices.Clone(found[i].Deliveries)
			for j := range found[i].Deliveries {
				found[i].Deliveries[j].Error = "" // it may name hosts
			}
		}
	}
	return rest.Answer(rest.Cut(found, in.Limit, func(x alerts.AlertEntry) string {
		n, _ := strconv.ParseInt(x.ID, 10, 64) //nolint:errcheck // the store formats a number
		return rest.NumberCursor("alert", n)
	})), nil
}
