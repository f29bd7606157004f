package attention

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store/attention/sqlcgen"
	"github.com/belfryhq/belfry/internal/store/jobchange"
	"github.com/belfryhq/belfry/internal/store/pgerr"
)

const (
	// MaxItems is the maximum number of items of one kind.
	MaxItems = 200
	// maxScan is how many failing jobs, held runs, waiting runs or failed deliveries a query reads.
	maxScan = 10_000
	// leastBacklog is the number of runs that make a backlog.
	leastBacklog = 100
	// MaxNote is the maximum length of a note, in characters.
	MaxNote = 1024
)

// Kind says what kind of thing needs attention.
type Kind string

// The kinds of items.
const (
	JobFailing            Kind = "job_failing"
	GroupWithoutExecutors Kind = "group_without_executors"
	Backlog               Kind = "backlog"
	Missed                Kind = "missed"
	AlertUndelivered      Kind = "alert_undelivered"
	DeadLetters           Kind = "dead_letters"
)

// Kinds returns the kinds of items.
func Kinds() []Kind {
	return []Kind{JobFailing, GroupWithoutExecutors, Backlog, Missed, AlertUndelivered, DeadLetters}
}

// Item is something that needs attention.
type Item struct {
	Kind  Kind
	Key   string               // identifies the item within its kind
	Cause string               // if it changes, an acknowledgement ends
	Group string               // empty: none
	Since time.Time            // zero: unknown
	Count int64                // failed runs in a row, jobs, runs, fire times, deliveries, or letters
	Text  string               // in English
	Why   *explain.Explanation // Text as code and arguments, for servers and roles

	JobID       domain.JobID // 0: none
	JobName     string
	RunbookURL  string
	RunID       domain.RunID // the newest failed run of a failing job
	Reason      domain.Reason
	Message     string // of that run, the first 300 characters
	Parts       []explain.Explanation
	LastSuccess *domain.LastSuccess
	Changes     []explain.Explanation // what changed between the last success and that run
	Error       string                // why a delivery failed, or details of servers and roles; only for admins
	AtLeast     bool                  // count is a lower bound
	Ack         *Ack
}

// ID returns the id of the item.
func (i *Item) ID() string { return string(i.Kind) + ":" + i.Key }

// Ack is an acknowledgement.
type Ack struct {
	By    string
	At    time.Time
	Note  string
	Until time.Time // zero: until the cause changes
}

// List is what needs attention.
type List struct {
	Items     []Item
	Truncated bool // more items exist, or jobs, runs and deliveries that were not counted
}

// Store reads what needs attention, and keeps acknowledgements. It is safe for concurrent use.
type Store struct {
	q    *sqlcgen.Queries
	pool *pgxpool.Pool
}

// New returns a Store on a pool whose connections have Belfry's schema on their search path.
func New(pool *pgxpool.Pool) *Store { return &Store{q: sqlcgen.New(pool), pool: pool} }

// list is a List that is being made.
type list struct {
	List
	s      *Store
	ctx    context.Context //nolint:containedctx // of one call
	only   []string
	absent map[string]*Item // the groups without executors
}

// Items lists what needs attention in some groups (nil: all), except dead letters, which are not in Postgres. alive reports whether a group has a
// live instance.
func (s *Store) Items(ctx context.Context, only []string, alive func(group string) bool) (List, error) {
	if only != nil && len(only) == 0 {
		return List{}, nil
	}
	l := &list{s: s, ctx: ctx, only: only, absent: map[string]*Item{}}
	for _, add := range []func(func(string) bool) error{l.groups, l.addFailing, l.addMissed, l.addUndelivered} {
		if err := add(alive); err != nil {
			return List{}, pgerr.Translate(err)
		}
	}
	err := s.Acknowledged(ctx, l.Items)
	return l.List, err
}

// groups adds the groups without executors and the backlogs.
func (l *list) groups(alive func(string) bool) error {
	enabled, err := l.s.q.GroupJobs(l.ctx, l.only)
	if err != nil {
		return err
	}
	backlogs, err := l.s.q.Backlogs(l.ctx, sqlcgen.BacklogsParams{Only: l.only, MaxScan: maxScan})
	if err != nil {
		return err
	}
	absent := func(group string) *Item {
		if l.absent[group] == nil {
			l.absent[group] = &Item{Kind: GroupWithoutExecutors, Key: group, Group: group, Cause: "absent"}
		}
		return l.absent[group]
	}
	jobs := map[string]int64{}
	for _, g := range enabled {
		if jobs[g.GroupName] = g.Enabled; !alive(g.GroupName) {
			absent(g.GroupName)
		}
	}
	waiting := map[string]int64{}
	var big []Item
	for _, b := range backlogs {
		atLeast := b.Held >= maxScan || b.Waiting >= maxScan
		if !alive(b.GroupName) {
			absent(b.GroupName).begin(b.Since)
			waiting[b.GroupName] = b.Held + b.Waiting
			continue
		}
		if n := b.Held + b.Waiting; n >= leastBacklog {
			big = append(big, Item{Kind: Backlog, Key: b.GroupName, Group: b.GroupName, Since: b.Since.UTC(), Count: n, AtLeast: atLeast,
				Cause: strconv.Itoa((bits.Len64(uint64(n)) - 1) / 2), Text: backlogText(b.Held, b.Waiting)})
		}
	}
	failing, err := l.s.q.FailingOfAbsent(l.ctx, sqlcgen.FailingOfAbsentParams{Absent: keys(l.absent), MaxScan: maxScan})
	if err != nil {
		return err
	}
	folded := map[string]int64{}
	for _, f := range failing {
		l.absent[f.GroupName].begin(f.Since)
		folded[f.GroupName] = f.Jobs
	}
	var without []Item
	for _, group := range keys(l.absent) {
		item := l.absent[group]
		item.Count = jobs[group]
		item.Text = absentText(jobs[group], waiting[group], folded[group])
		without = append(without, *item)
	}
	l.add(without)
	l.add(big)
	return nil
}

// begin moves the beginning of an item to an earlier instant.
func (i *Item) begin(at time.Time) {
	if i.Since.IsZero() || at.Before(i.Since) {
		i.Since = at.UTC()
	}
}

// add adds items of one kind, MaxItems at most.
func (l *list) add(items []Item) {
	if len(items) > MaxItems {
		items, l.Truncated = items[:MaxItems], true
	}
	l.Items = append(l.Items, items...)
}

func (l *list) addFailing(func(string) bool) error {
	rows, err := l.s.q.FailingJobs(l.ctx, sqlcgen.FailingJobsParams{Only: l.only, Absent: keys(l.absent), MaxScan: maxScan, MaxRows: MaxItems + 1})
	if err != nil {
		return err
	}
	n, err := l.s.q.FailingCount(l.ctx, maxScan)
	if err != nil {
		return err
	}
	l.Truncated = l.Truncated || n >= maxScan
	failing := make([]sqlcgen.FailingJobRow, len(rows))
	for i, r := range rows {
		failing[i] = sqlcgen.FailingJobRow(r)
	}
	items, err := l.s.failingItems(l.ctx, failing)
	l.add(items)
	return err
}

// failingItems returns the items of failing jobs, with what changed since their last success.
func (s *Store) failingItems(ctx context.Context, rows []sqlcgen.FailingJobRow) ([]Item, error) {
	items := make([]Item, len(rows))
	var compared []jobchange.Failing
	var of []int
	for i, r := range rows {
		items[i] = failingItem(r)
		if success := items[i].LastSuccess; success != nil {
			failure := domain.LastFailure{Version: int(r.Version), Instance: r.Instance, ExecutorVersion: r.Executor}
			compared, of = append(compared, jobchange.Failing{Job: items[i].JobID, Success: *success, Failure: failure}), append(of, i)
		}
	}
	changes, err := jobchange.Of(ctx, s.pool, compared)
	for n, c := range changes {
		items[of[n]].Changes = c
	}
	return items, err
}

func failingItem(r sqlcgen.FailingJobRow) Item {
	item := Item{Kind: JobFailing, Key: strconv.FormatInt(r.JobID, 10), Group: r.GroupName, Count: int64(r.Streak), JobID: domain.JobID(r.JobID), JobName: r.Name,
		RunbookURL: r.RunbookUrl, Since: r.FailingSince.UTC(), Cause: strconv.FormatInt(r.FailingSince.UnixMicro(), 10), RunID: r.Run, Reason: domain.Reason(r.Reason), Message: r.Message, Parts: explain.Notes(r.MessageNotes).Parts(r.Message), Text: r.Reason}
	if r.Message != "" {
		item.Text += ": " + r.Message
	}
	if r.SuccessRun != nil && r.SuccessAt != nil && r.SuccessVersion != nil {
		item.LastSuccess = &domain.LastSuccess{RunID: *r.SuccessRun, At: domain.At(*r.SuccessAt), Version: int(*r.SuccessVersion),
			Instance: orEmpty(r.SuccessInstance), ExecutorVersion: orEmpty(r.SuccessExecutor)}
	}
	return item
}

func (l *list) addMissed(func(string) bool) error {
	rows, err := l.s.q.MissedOfGroups(l.ctx, sqlcgen.MissedOfGroupsParams{Only: l.only, MaxRows: MaxItems + 1})
	if err != nil {
		return err
	}
	var items []Item
	for _, r := range rows {
		items = append(items, Item{Kind: Missed, Key: r.GroupName, Group: r.GroupName, Since: r.Since.UTC(), Count: r.Fires, Cause: strconv.FormatInt(r.ID, 10),
			JobID: domain.JobID(r.JobID), JobName: r.JobName,
			Text: fmt.Sprintf("%s missed in the last 24 hours; the newest because: %s", plural(r.Fires, "fire time was", "fire times were"), explain.Read(explain.Note(r.WhyNote), r.Why).Text)})
	}
	l.add(items)
	return nil
}

func (l *list) addUndelivered(func(string) bool) error {
	rows, err := l.s.q.Undelivered(l.ctx, sqlcgen.UndeliveredParams{Only: l.only, MaxScan: maxScan, MaxRows: MaxItems + 1})
	if err != nil {
		return err
	}
	var items []Item
	for _, r := range rows {
		items = append(items, Item{Kind: AlertUndelivered, Key: r.GroupName + ":" + r.Channel, Group: r.GroupName, Since: r.Since.UTC(), Count: r.Deliveries,
			Cause: strconv.FormatInt(r.Newest, 10), Error: r.Error,
			Text: fmt.Sprintf("%s not delivered through channel %s in the last 24 hours", plural(r.Deliveries, "alert was", "alerts were"), r.Channel)})
	}
	l.add(items)
	return nil
}

// Acknowledged sets the acknowledgements of items.
func (s *Store) Acknowledged(ctx context.Context, items []Item) error {
	if len(items) == 0 {
		return nil
	}
	ids := make([]string, len(items))
	for i := range items {
		ids[i] = items[i].ID()
	}
	acks, err := s.q.Acks(ctx, ids)
	if err != nil {
		return pgerr.Translate(err)
	}
	for _, a := range acks {
		if i := slices.Index(ids, a.Item); a.Cause == items[i].Cause {
			items[i].Ack = &Ack{By: a.ByActor, At: a.At.UTC(), Note: a.Note, Until: orZero(a.Until).UTC()}
		}
	}
	return nil
}

// Job returns the item of a failing job. NotFound: the job is not failing, or its failures belong to the item of its group.
func (s *Store) Job(ctx context.Context, id domain.JobID, alive func(group string) bool) (Item, error) {
	r, err := s.q.FailingJob(ctx, int64(id))
	if err != nil {
		return Item{}, pgerr.Translate(err)
	}
	if (r.Reason == string(domain.ReasonNoExecutor) || r.Reason == string(domain.ReasonLost)) && !alive(r.GroupName) {
		return Item{}, domain.NewError(domain.NotFound, "there is no such item")
	}
	items, err := s.failingItems(ctx, []sqlcgen.FailingJobRow{r})
	return items[0], err
}

// Acknowledge acknowledges an item, in place of an earlier acknowledgement. until is zero for no end.
func (s *Store) Acknowledge(ctx context.Context, item *Item, by, note string, until time.Time) error {
	p := sqlcgen.SetAckParams{Item: item.ID(), Cause: item.Cause, ByActor: by, Note: note}
	if !until.IsZero() {
		p.Until = &until
	}
	a, err := s.q.SetAck(ctx, p)
	if err != nil {
		return pgerr.Translate(err)
	}
	item.Ack = &Ack{By: a.ByActor, At: a.At.UTC(), Note: a.Note, Until: orZero(a.Until).UTC()}
	return pgerr.Translate(s.q.SweepAcks(ctx))
}

// Ended ends the acknowledgements of items, given by their ids, because what they were about is over.
func (s *Store) Ended(ctx context.Context, ids []string) error {
	return pgerr.Translate(s.q.EndAcks(ctx, ids))
}

// InstancesSeen ends the acknowledgements of the absence of executors in groups that have live instances.
func (s *Store) InstancesSeen(ctx context.Context, groups []string) error {
	if len(groups) == 0 {
		return nil
	}
	ids := make([]string, len(groups))
	for i, g := range groups {
		ids[i] = string(GroupWithoutExecutors) + ":" + g
	}
	return pgerr.Translate(s.q.EndAcks(ctx, ids))
}

func backlogText(held, waiting int64) string {
	var parts []string
	if held > 0 {
		parts = append(parts, plural(held, "run is held", "runs are held"))
	}
	if waiting > 0 {
		parts = append(parts, plural(waiting, "run waits for an instance", "runs wait for an instance"))
	}
	return strings.Join(parts, ", ") + ", for over a minute"
}

func absentText(enabled, waiting, failing int64) string {
	text := "no live executor, and " + plural(enabled, "enabled job", "enabled jobs")
	if waiting > 0 {
		text += "; " + plural(waiting, "run waits or is held", "runs wait or are held")
	}
	if failing > 0 {
		text += "; " + plural(failing, "job fails", "jobs fail") + " because of it"
	}
	return text
}

func plural(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// keys returns the names of groups in order.
func keys(groups map[string]*Item) []string {
	names := make([]string, 0, len(groups))
	for name := range groups {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
