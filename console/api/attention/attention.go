// Package attention is the REST API of what needs a person: servers and roles that are missing, failing jobs, groups without executors, backlogs,
// missed fire times, alerts that were not delivered, and dead letters.
//
// The console itself watches the servers and the roles. So the list also answers while Postgres is unavailable, with these items only.
package attention

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/outage"
	"github.com/belfryhq/belfry/internal/store/account"
	store "github.com/belfryhq/belfry/internal/store/attention"
)

// API serves what needs attention. All fields but Outages must be set.
type API struct {
	Store     Store
	Letters   Letters
	Instances Instances
	Outages   Outages // may be nil: then no servers and roles are named
	Audit     *rest.Audit
	Log       *slog.Logger
}

// Store reads what needs attention, and keeps acknowledgements. Package internal/store/attention documents the methods.
type Store interface {
	Items(ctx context.Context, only []string, alive func(group string) bool) (store.List, error)
	Job(ctx context.Context, id domain.JobID, alive func(group string) bool) (store.Item, error)
	Acknowledged(ctx context.Context, items []store.Item) error
	Acknowledge(ctx context.Context, item *store.Item, by, note string, until time.Time) error
}

// Letters counts dead letters. While NATS is unavailable, it returns Unavailable.
type Letters interface {
	CountDeadLetters(ctx context.Context) (domain.DeadLetterCount, error)
}

// Outages names the servers and roles that are missing.
type Outages interface {
	Troubles() []outage.Trouble
}

// Instances knows the live instances of a group.
type Instances interface {
	Instances(group string) []domain.Instance
}

// Path is the path of the list.
const Path = rest.Prefix + "/attention"

// Register adds the operations.
func (a *API) Register(r *rest.Router) {
	const tag = "Attention"
	rest.Register(r, rest.Operation{Method: "GET", Path: "/attention", Tag: tag, Summary: "List what needs attention", Needs: account.Viewer,
		Description: "The servers and roles of the engine that are missing, with the words of the alerts and their runbooks; these are listed also while Postgres is unavailable. " +
			"Items of the groups that the caller sees: failing jobs that are enabled, groups with enabled jobs and without executors, backlogs of 100 runs or more " +
			"that have been held or have waited for over a minute, fire times that were missed and alerts that were not delivered in the last 24 hours, " +
			"and, for admins, dead letters. Jobs that fail because their group has no executors belong to the item of the group. There are at most 200 items of each kind."}, a.list)
	rest.Register(r, rest.Operation{Method: "POST", Path: "/attention/{id}/acknowledge", Tag: tag, Summary: "Acknowledge an item", Needs: account.Operator,
		Description: "Marks the item, in place of an earlier acknowledgement. It silences no alert. The acknowledgement ends at until, and when the cause of the item changes: " +
			"a job fails again after a success, a group lost its executors again, a backlog has grown to four times its size, or more fire times, deliveries or letters came.",
		Body: rest.BodyOf[ackBody]()}, a.acknowledge)
}

type attentionAnswer struct {
	Items       []attentionItem `json:"items" nullable:"false"`
	Truncated   bool            `json:"truncated" doc:"More items exist, or not all jobs and runs were counted"`
	Unavailable []store.Kind    `json:"unavailable" nullable:"false" doc:"The kinds that could not be read"`
}

type attentionItem struct {
	ID      string          `json:"id" doc:"The kind and a key. It is the same each time"`
	Kind    store.Kind      `json:"kind"`
	Group   string          `json:"group" doc:"Empty for dead letters, servers and roles"`
	JobID   *domain.JobID   `json:"job_id" doc:"The failing job, or the job with the newest missed fire time"`
	JobName string          `json:"job_name,omitempty"`
	Since   *domain.Instant `json:"since" doc:"null if it is not known"`
	Count   int64           `json:"count" doc:"server_unavailable: servers. postgres_blocked: sessions. postgres_connections: percent. role_missing: roles. process_missing: processes. job_failing: failed runs in a row. group_without_executors: enabled jobs. backlog: runs. missed: fire times. alert_undelivered: deliveries. dead_letters: letters"`
	AtLeast bool            `json:"at_least,omitempty" doc:"count is a lower bound"`
	Text    string          `json:"text" doc:"What is wrong, in English"`

	Explanation *explain.Explanation `json:"explanation,omitempty" doc:"Servers and roles: what is wrong, as code and arguments"`
	Detail      string               `json:"detail,omitempty" doc:"For admins: names of hosts and sessions, and errors. The text ends with it"`

	RunID        *domain.RunID         `json:"run_id,omitempty" doc:"job_failing: the newest failed run"`
	Reason       domain.Reason         `json:"reason,omitempty" doc:"job_failing: the reason of that run"`
	Message      string                `json:"message,omitempty" doc:"job_failing: the first 300 characters of the message of that run"`
	MessageParts []explain.Explanation `json:"message_parts,omitempty" doc:"The parts of the message, as in the schema Run"`
	LastSuccess  *domain.LastSuccess   `json:"last_success,omitempty"`
	Changes      []explain.Explanation `json:"changes,omitempty" doc:"job_failing: what changed between the last success and that run, as in the schema JobHealth. Absent if nothing is known to have changed"`
	RunbookURL   string                `json:"runbook_url,omitempty"`
	Acknowledged *attentionAck         `json:"acknowledged,omitempty" doc:"Absent if the item is not acknowledged"`
}

type attentionAck struct {
	By    string          `json:"by"`
	At    domain.Instant  `json:"at"`
	Note  string          `json:"note"`
	Until *domain.Instant `json:"until" doc:"null: until the cause changes"`
}

type ackBody struct {
	Note  string          `json:"note,omitempty" maxLength:"1024" doc:"What is being done about it"`
	Until *domain.Instant `json:"until,omitempty" doc:"The end of the acknowledgement. Default: when the cause of the item changes"`
}

// alive reports whether a group has an instance that takes runs.
func (a *API) alive(group string) bool {
	return slices.ContainsFunc(a.Instances.Instances(group), func(i domain.Instance) bool { return !i.Draining })
}

func (a *API) list(ctx context.Context, id auth.Identity, in *struct{}) (*rest.Output[attentionAnswer], error) {
	missing := a.missing()
	l, err := a.Store.Items(ctx, id.Only(), a.alive)
	if err == nil {
		err = a.Store.Acknowledged(ctx, missing)
	}
	if err != nil {
		if answer := onlyMissing(id, missing, err); answer != nil {
			return rest.Answer(*answer), nil
		}
		return nil, err
	}
	out := attentionAnswer{Truncated: l.Truncated, Unavailable: []store.Kind{}}
	l.Items = append(missing, l.Items...)
	if id.Role == account.Admin {
		letters, err := a.letters(ctx)
		if err != nil {
			a.Log.WarnContext(ctx, "cannot count dead letters, what needs attention is listed without them", "err", err)
			out.Unavailable = append(out.Unavailable, store.DeadLetters)
		}
		l.Items = append(l.Items, letters...)
	}
	out.Items = rest.Each(l.Items, func(i store.Item) attentionItem { return shown(id, i) })
	return rest.Answer(out), nil
}

// missing returns the items of the servers and roles that are missing.
func (a *API) missing() []store.Item {
	if a.Outages == nil {
		return nil
	}
	return rest.Each(a.Outages.Troubles(), func(t outage.Trouble) store.Item {
		return store.Item{Kind: store.Kind(t.Kind), Key: t.Key, Cause: "present", Since: t.Since, Count: t.Count, Text: t.Why.Text, Why: &t.Why, Error: t.Detail, RunbookURL: t.Runbook}
	})
}

// onlyMissing returns the answer while Postgres is unavailable. It is nil if err has another cause, or if the console has not noticed it yet.
func onlyMissing(id auth.Identity, missing []store.Item, err error) *attentionAnswer {
	noticed := slices.ContainsFunc(missing, func(i store.Item) bool { return i.ID() == string(outage.ServerUnavailable)+":"+outage.Postgres })
	if domain.CodeOf(err) != domain.Unavailable || !noticed {
		return nil
	}
	return &attentionAnswer{Items: rest.Each(missing, func(i store.Item) attentionItem { return shown(id, i) }), Unavailable: store.Kinds()}
}

// AnswerUnidentified answers a caller whose token cannot be verified because Postgres is unavailable. Such a caller learns which servers are
// unavailable, as from /readyz, and no names of hosts. It returns false and writes nothing if err has another cause.
func (a *API) AnswerUnidentified(w http.ResponseWriter, err error) bool {
	servers := slices.DeleteFunc(a.missing(), func(i store.Item) bool {
		return i.Kind != store.Kind(outage.ServerUnavailable) || i.Key == outage.NATSServers
	})
	answer := onlyMissing(auth.Identity{}, servers, err)
	if answer == nil {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the client is gone
	return true
}

// letters returns the item of the dead letters, if there are some.
func (a *API) letters(ctx context.Context) ([]store.Item, error) {
	n, err := a.Letters.CountDeadLetters(ctx)
	if err != nil || n.Letters == 0 {
		return nil, err
	}
	items := []store.Item{{Kind: store.DeadLetters, Key: "all", Cause: strconv.FormatUint(n.Newest, 10), Since: n.Since, Count: int64(n.Letters),
		Text: "messages could not be processed"}}
	return items, a.Store.Acknowledged(ctx, items)
}

func shown(id auth.Identity, i store.Item) attentionItem {
	out := attentionItem{ID: i.ID(), Kind: i.Kind, Group: i.Group, JobName: i.JobName, Count: i.Count, AtLeast: i.AtLeast, Text: i.Text, Reason: i.Reason,
		Explanation: i.Why, Message: i.Message, MessageParts: i.Parts, LastSuccess: i.LastSuccess, Changes: i.Changes, RunbookURL: i.RunbookURL}
	if rest.HidesSecrets(id) { // the text contains the message
		out.Text = domain.Mask(out.Text)
	}
	if i.Error != "" && id.Role == account.Admin {
		out.Detail = i.Error
		out.Text = strings.TrimSuffix(out.Text, ".") + ": " + i.Error
	}
	if i.JobID != 0 {
		out.JobID = &i.JobID
	}
	if !i.RunID.IsZero() {
		out.RunID = &i.RunID
	}
	if !i.Since.IsZero() {
		out.Since = domain.AtPtr(i.Since)
	}
	if i.Ack != nil {
		out.Acknowledged = shownAck(*i.Ack)
	}
	return out
}

func shownAck(k store.Ack) *attentionAck {
	out := &attentionAck{By: k.By, At: domain.At(k.At), Note: k.Note}
	if !k.Until.IsZero() {
		out.Until = domain.AtPtr(k.Until)
	}
	return out
}

func (a *API) acknowledge(ctx context.Context, id auth.Identity, in *struct {
	ID string `path:"id" maxLength:"200" doc:"The id of the item"`
	rest.JSONBody
}) (*rest.Output[attentionItem], error) {
	var b ackBody
	if err := strict.AlsoFaulty(in.Decode(&b), checkAck(&b)); err != nil {
		return nil, err
	}
	item, err := a.find(ctx, id, in.ID)
	if err != nil {
		return nil, err
	}
	var before any
	if item.Ack != nil {
		before = shownAck(*item.Ack)
	}
	var until time.Time
	if b.Until != nil {
		until = b.Until.Time
	}
	if err := a.Store.Acknowledge(ctx, &item, id.Actor(), b.Note, until); err != nil {
		return nil, err
	}
	out := shown(id, item)
	a.Audit.Record(ctx, id, "attention.acknowledge", "attention/"+in.ID, before, out.Acknowledged)
	return rest.Answer(out), nil
}

func checkAck(b *ackBody) error {
	var f domain.Faults
	if n := utf8.RuneCountInString(b.Note); n > store.MaxNote {
		f.Add("note", fmt.Sprintf("has %d characters; at most %d are allowed", n, store.MaxNote))
	}
	if strings.ContainsRune(b.Note, 0) {
		f.Add("note", "must not contain NUL characters")
	}
	if b.Until != nil && !b.Until.After(time.Now()) {
		f.Add("until", "lies in the past")
	}
	return f.Err("the acknowledgement is not valid")
}

// noItem is the error for an item that does not exist, has ended, or is hidden from the caller.
func noItem() error { return domain.NewError(domain.NotFound, "there is no such item") }

// find returns a present item that the caller sees.
func (a *API) find(ctx context.Context, id auth.Identity, name string) (store.Item, error) {
	kind, key, _ := strings.Cut(name, ":")
	switch store.Kind(kind) {
	case store.JobFailing:
		return a.failingJob(ctx, id, key)
	case store.DeadLetters:
		if id.Role != account.Admin {
			return store.Item{}, noItem()
		}
		letters, err := a.letters(ctx)
		return pick(letters, name, err)
	case store.Kind(outage.ServerUnavailable), store.Kind(outage.PostgresBlocked), store.Kind(outage.PostgresConnections), store.Kind(outage.RoleMissing), store.Kind(outage.ProcessMissing):
		if id.Role != account.Admin {
			return store.Item{}, noItem()
		}
		missing := a.missing()
		return pick(missing, name, a.Store.Acknowledged(ctx, missing))
	case store.GroupWithoutExecutors, store.Backlog, store.Missed, store.AlertUndelivered:
		group, _, _ := strings.Cut(key, ":")
		if !id.Sees(group) {
			return store.Item{}, noItem()
		}
		l, err := a.Store.Items(ctx, []string{group}, a.alive)
		return pick(l.Items, name, err)
	}
	return store.Item{}, noItem()
}

func (a *API) failingJob(ctx context.Context, id auth.Identity, key string) (store.Item, error) {
	job, err := strconv.ParseInt(key, 10, 64)
	if err != nil {
		return store.Item{}, noItem()
	}
	item, err := a.Store.Job(ctx, domain.JobID(job), a.alive)
	switch {
	case domain.CodeOf(err) == domain.NotFound, err == nil && (!id.Sees(item.Group) || item.Key != key):
		return store.Item{}, noItem()
	case err != nil:
		return store.Item{}, err
	}
	items := []store.Item{item}
	err = a.Store.Acknowledged(ctx, items)
	return items[0], err
}

func pick(items []store.Item, name string, err error) (store.Item, error) {
	if err != nil {
		return store.Item{}, err
	}
	for i := range items {
		if items[i].ID() == name {
			return items[i], nil
		}
	}
	return store.Item{}, noItem()
}
