package domain

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// JobSpec is the part of a job that users set: what to run, when, where and how. The REST API, job files, and the job versions in
// Postgres use its JSON form.
type JobSpec struct {
	Group         string           `json:"group"`
	Name          string           `json:"name"`
	Description   string           `json:"description"`
	Author        string           `json:"author"`
	RunbookURL    string           `json:"runbook_url"` // what to do when the job fails; http or https
	Tags          []string         `json:"tags"`
	Enabled       bool             `json:"enabled"`
	Schedule      Schedule         `json:"schedule"`
	Misfire       Misfire          `json:"misfire"`
	Handler       string           `json:"handler,omitempty"`
	Script        *Script          `json:"script,omitempty"`
	Param         string           `json:"param"`
	Route         Route            `json:"route"`
	RouteKey      string           `json:"route_key,omitempty"`
	Shards        int              `json:"shards"`
	Block         Block            `json:"block"`
	BlockScope    BlockScope       `json:"block_scope"`
	Timeout       Duration         `json:"timeout"`
	StartDeadline Duration         `json:"start_deadline"`
	Retries       int              `json:"retries"`
	RetryBackoff  RetryBackoff     `json:"retry_backoff"`
	Children      []Child          `json:"children"`
	Alert         Alert            `json:"alert"`
	Retention     OptionalDuration `json:"retention"`
	// RetryUnknown applies to groups whose executors are reached through a gateway. It allows another attempt after an attempt was declared
	// lost, although its handler may still be running.
	RetryUnknown bool `json:"retry_unknown"`
}

// Job is a job as stored in Postgres.
type Job struct {
	ID JobID `json:"id"`
	JobSpec
	LastFireTime *Instant `json:"last_fire_time"`
	NextFireTime *Instant `json:"next_fire_time"`
	PauseState            // of the job itself, not of its group
	CreatedAt    Instant  `json:"created_at"`
	UpdatedAt    Instant  `json:"updated_at"`
	Version      int      `json:"version"`
	// ScheduleDescription describes the schedule in words, in the language of the caller. It is present only in answers of the REST API.
	ScheduleDescription string `json:"schedule_description,omitempty" readOnly:"true" doc:"The schedule in words, in the language of Accept-Language (en, zh-CN)" example:"At 02:00 every day, Asia/Shanghai"`
	// Note is a sentence for the job's owner, such as that an enabled job has no next fire time.
	Note string `json:"note,omitempty"`
	// Health says how the job fares. It is absent in answers to changes of a job.
	Health *JobHealth `json:"health,omitempty"`
	// NotedPauses are the pauses that Note is about; nil if it is about something else.
	NotedPauses []Pause `json:"-"`
}

// Schedule says when a job fires. Kind determines which of its fields apply. Package schedule compiles it.
type Schedule struct {
	Kind     ScheduleKind `json:"kind"`
	Expr     string       `json:"expr,omitempty"`
	Dialect  Dialect      `json:"dialect,omitempty"`
	Every    Duration     `json:"every,omitzero"`
	Delay    Duration     `json:"delay,omitzero"`
	At       *Instant     `json:"at,omitempty"`
	TimeZone string       `json:"time_zone,omitempty"`
	StartAt  *Instant     `json:"start_at,omitempty"`
	EndAt    *Instant     `json:"end_at,omitempty"`
	Jitter   Duration     `json:"jitter,omitzero"`
	Calendar string       `json:"calendar,omitempty"` // the name of a calendar; the job does not fire on its days off
	// DaysOff is a copy of the calendar's days from the time when the job's version was created, so that the version alone
	// determines its fire times. Clients can neither read nor write it. EncodeSpec and DecodeSpec keep it.
	DaysOff *DaysOff `json:"-"`
}

// ScheduleKind is the kind of a schedule.
type ScheduleKind string

// The kinds of schedule.
const (
	ScheduleNone       ScheduleKind = "none"        // only by manual trigger, API, event or parent
	ScheduleCron       ScheduleKind = "cron"        // a cron expression
	ScheduleFixedRate  ScheduleKind = "fixed_rate"  // a fixed interval that does not drift
	ScheduleFixedDelay ScheduleKind = "fixed_delay" // a delay after the end of the previous run
	ScheduleOnce       ScheduleKind = "once"        // one instant
)

// Dialect is the dialect of a cron expression.
type Dialect string

// The cron dialects.
const (
	DialectStandard Dialect = "standard" // crontab(5), optionally with leading seconds
	DialectQuartz   Dialect = "quartz"   // the Quartz scheduler's, 6 or 7 fields
)

// Misfire says what happens to fire times that were missed by more than the tolerance.
type Misfire string

// The misfire policies.
const (
	MisfireSkip     Misfire = "skip"
	MisfireFireOnce Misfire = "fire_once"
	MisfireFireAll  Misfire = "fire_all"
)

// Route says which instance of the group gets a run.
type Route string

// The routes.
const (
	RouteAny                 Route = "any"
	RouteFirst               Route = "first"
	RouteLast                Route = "last"
	RouteRoundRobin          Route = "round_robin"
	RouteRandom              Route = "random"
	RouteConsistentHash      Route = "consistent_hash"
	RouteLeastFrequentlyUsed Route = "least_frequently_used"
	RouteLeastRecentlyUsed   Route = "least_recently_used"
	RouteFailover            Route = "failover"
	RouteBusyover            Route = "busyover"
	RouteBroadcast           Route = "broadcast"
)

// Asks reports whether the route asks the instances before it chooses one.
func (r Route) Asks() bool { return r == RouteFailover || r == RouteBusyover }

// ByUse reports whether the route depends on how often or how recently the instances were used.
func (r Route) ByUse() bool { return r == RouteLeastFrequentlyUsed || r == RouteLeastRecentlyUsed }

// Block says what happens to a run that comes due while another run of its job is unfinished.
type Block string

// The block policies.
const (
	BlockSerial       Block = "serial"
	BlockDiscardLater Block = "discard_later"
	BlockCoverEarly   Block = "cover_early"
	BlockParallel     Block = "parallel"
)

// BlockScope says which runs of the job block it: those anywhere, or those on the chosen instance.
type BlockScope string

// The block scopes.
const (
	ScopeCluster  BlockScope = "cluster"
	ScopeInstance BlockScope = "instance"
)

// RetryBackoff is the wait before a retry: Initial, multiplied by Factor each time, at most Max.
type RetryBackoff struct {
	Initial Duration `json:"initial"`
	Factor  float64  `json:"factor"`
	Max     Duration `json:"max"`
}

// Child names a job that runs when a run of this job is final and On matches.
type Child struct {
	JobID JobID   `json:"job_id"`
	On    ChildOn `json:"on"`
}

// ChildOn is the condition of a child.
type ChildOn string

// The conditions of a child.
const (
	OnSuccess ChildOn = "success"
	OnFailure ChildOn = "failure"
	OnAlways  ChildOn = "always"
)

// Matches reports whether a parent that ended in the given final state starts the child.
func (on ChildOn) Matches(s State) bool {
	switch on {
	case OnSuccess:
		return s == Succeeded
	case OnFailure:
		return s == Failed
	case OnAlways:
		return s.Final()
	}
	return false
}

// Alert says which channels are notified and about which kinds of events.
type Alert struct {
	Channels []string    `json:"channels"`
	On       []AlertKind `json:"on"`
}

// The defaults and bounds of a job's fields.
const (
	DefaultStartDeadline = 10 * time.Minute
	MaxParamBytes        = 64 << 10
	MaxMessageBytes      = 16 << 10
	MaxOutputBytes       = 64 << 10
	MaxHeldRuns          = 1000 // per job; a further run ends with reason queue_full
	FairRounds           = 256  // how often instances may hand a run back; after that, its start deadline is no longer extended
	MaxRetries           = 100
	MaxTags              = 16
	MaxChildren          = 100
	MaxShards            = 1000
)

// DefaultJobSpec returns a spec with every optional field at its default. Decoding JSON over it gives absent
// fields their defaults.
func DefaultJobSpec() JobSpec {
	return JobSpec{
		Tags: []string{}, Enabled: true, Misfire: MisfireSkip, Route: RouteAny,
		Block: BlockSerial, BlockScope: ScopeCluster,
		StartDeadline: Duration(DefaultStartDeadline),
		RetryBackoff:  RetryBackoff{Initial: Duration(time.Second), Factor: 2, Max: Duration(5 * time.Minute)},
		Children:      []Child{}, Alert: Alert{Channels: []string{}, On: []AlertKind{}},
	}
}

var groupName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// GroupNameRule states the form of group names.
const GroupNameRule = "a group name is 1 to 63 characters, a-z, 0-9, _ or -, and starts with a letter or digit"

// ValidGroupName reports whether s is a valid group name. Group names are NATS subject tokens, so they cannot contain characters
// that have a meaning in subjects.
func ValidGroupName(s string) bool { return groupName.MatchString(s) }

// Normalize replaces empty optional values by their defaults, so that equal jobs have equal stored forms. It does not change
// numbers: a spec that starts from DefaultJobSpec contains a zero only if the user wrote it, and Validate checks that.
func (s *JobSpec) Normalize() {
	d := DefaultJobSpec()
	setIfZero(&s.Misfire, d.Misfire)
	setIfZero(&s.Route, d.Route)
	setIfZero(&s.Block, d.Block)
	setIfZero(&s.BlockScope, d.BlockScope)
	if s.Schedule.Kind == ScheduleCron {
		setIfZero(&s.Schedule.Dialect, DialectStandard)
	}
	for i := range s.Children {
		setIfZero(&s.Children[i].On, OnSuccess)
	}
	if s.Tags == nil {
		s.Tags = []string{}
	}
	if s.Children == nil {
		s.Children = []Child{}
	}
	s.Alert.normalize()
}

func setIfZero[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Validate returns an Invalid error that names every faulty field. It does not compile the schedule (package schedule does), and
// it does not check that groups and jobs exist (the store does).
func (s *JobSpec) Validate() error {
	var f Faults
	if s.Group == "" {
		f.Add("group", "is required: the executor group that runs the job")
	} else if !ValidGroupName(s.Group) {
		f.Add("group", GroupNameRule)
	}
	text := f.text
	text("name", s.Name, 1, 128)
	text("description", s.Description, 0, 1024)
	text("author", s.Author, 0, 64)
	f.address("runbook_url", s.RunbookURL)
	text("handler", s.Handler, 0, 128)
	text("route_key", s.RouteKey, 0, 256)
	if len(s.Tags) > MaxTags {
		f.Add("tags", fmt.Sprintf("has %d tags; at most %d are allowed", len(s.Tags), MaxTags))
	}
	for i, t := range s.Tags {
		text(fmt.Sprintf("tags[%d]", i), t, 1, 64)
	}
	if len(s.Param) > MaxParamBytes {
		f.Add("param", fmt.Sprintf("is %d bytes long; at most %d are allowed", len(s.Param), MaxParamBytes))
	} else {
		text("param", s.Param, 0, MaxParamBytes)
	}
	s.validatePolicies(&f)
	s.validateTarget(&f)
	return f.Err("the job is not valid")
}

// text adds a fault unless v is text of lo to hi characters that Postgres can store.
func (f *Faults) text(field, v string, lo, hi int) {
	switch n := utf8.RuneCountInString(v); {
	case !utf8.ValidString(v) || strings.ContainsRune(v, 0):
		f.Add(field, "must be text in UTF-8 without NUL")
	case n < lo:
		f.Add(field, "is required")
	case n > hi:
		f.Add(field, fmt.Sprintf("is %d characters long; at most %d are allowed", n, hi))
	}
}

// MaxURL is the maximum length of an address, in characters.
const MaxURL = 1024

// address adds a fault unless v is empty or an absolute http or https URL. Other schemes could run code in the browser of the person who
// follows the link.
func (f *Faults) address(field, v string) {
	f.text(field, v, 0, MaxURL)
	if u, err := url.Parse(v); v != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		f.Add(field, "must be an http or https URL with a host, such as https://wiki.example.com/billing")
	}
}

func (s *JobSpec) validateTarget(f *Faults) {
	switch {
	case s.Handler == "" && s.Script == nil:
		f.Add("handler", "is required unless script is given")
	case s.Handler != "" && s.Script != nil:
		f.Add("script", "give either handler or script, not both")
	}
	if s.Script != nil {
		s.Script.check(f, "script.")
	}
	for i, c := range s.Children {
		at := fmt.Sprintf("children[%d].", i)
		// The same job may be a child both on success and on failure, because only one of them happens.
		if j := slices.IndexFunc(s.Children[:i], func(b Child) bool {
			return b.JobID == c.JobID && (b.On == c.On || b.On == OnAlways || c.On == OnAlways)
		}); j >= 0 && c.JobID > 0 {
			f.Add(at+"job_id", fmt.Sprintf("is already given in children[%d]; for success and failure, use on: always", j))
		}
		if c.JobID <= 0 {
			f.Add(at+"job_id", "is required: the id of the job to run")
		}
		oneOf(f, at+"on", c.On, OnSuccess, OnFailure, OnAlways)
	}
	if len(s.Children) > MaxChildren {
		f.Add("children", fmt.Sprintf("at most %d are allowed", MaxChildren))
	}
	s.Alert.validate(f)
}

func (s *JobSpec) validatePolicies(f *Faults) {
	oneOf(f, "misfire", s.Misfire, MisfireSkip, MisfireFireOnce, MisfireFireAll)
	oneOf(f, "route", s.Route, Routes...)
	oneOf(f, "block", s.Block, BlockSerial, BlockDiscardLater, BlockCoverEarly, BlockParallel)
	oneOf(f, "block_scope", s.BlockScope, ScopeCluster, ScopeInstance)
	if s.Shards < 0 || s.Shards > MaxShards {
		f.Add("shards", fmt.Sprintf("must be 0 (one per live instance) to %d", MaxShards))
	}
	if s.Retries < 0 || s.Retries > MaxRetries {
		f.Add("retries", fmt.Sprintf("must be 0 to %d", MaxRetries))
	}
	between := func(field string, d Duration, lo, hi time.Duration) {
		if d.Std() < lo || d.Std() > hi {
			f.Add(field, fmt.Sprintf("must be between %s and %s", lo, hi))
		}
	}
	between("timeout", s.Timeout, 0, 365*24*time.Hour)
	between("start_deadline", s.StartDeadline, time.Second, 365*24*time.Hour)
	between("retention", Duration(s.Retention), 0, 10*365*24*time.Hour)
	between("retry_backoff.initial", s.RetryBackoff.Initial, time.Millisecond, 24*time.Hour)
	between("retry_backoff.max", s.RetryBackoff.Max, time.Millisecond, 7*24*time.Hour)
	if s.RetryBackoff.Max < s.RetryBackoff.Initial {
		f.Add("retry_backoff.max", fmt.Sprintf("is less than initial; give %s or more", s.RetryBackoff.Initial))
	}
	if !(s.RetryBackoff.Factor >= 1 && s.RetryBackoff.Factor <= 100) { // in this form, it rejects NaN
		f.Add("retry_backoff.factor", "must be 1 to 100")
	}
}

// Routes lists all routes in the order of the documentation.
var Routes = []Route{
	RouteAny, RouteFirst, RouteLast, RouteRoundRobin, RouteRandom, RouteConsistentHash,
	RouteLeastFrequentlyUsed, RouteLeastRecentlyUsed, RouteFailover, RouteBusyover, RouteBroadcast,
}

func oneOf[T ~string](f *Faults, field string, v T, allowed ...T) {
	names := make([]string, len(allowed))
	for i, a := range allowed {
		if v == a {
			return
		}
		names[i] = string(a)
	}
	f.Add(field, fmt.Sprintf("%q is not known; use one of %s", v, strings.Join(names, ", ")))
}

// Backoff returns the wait before the attempt that follows the given one (counted from 1), with ±10% jitter
// drawn from random, a number in [0, 1).
func (b RetryBackoff) Backoff(attempt int, random float64) time.Duration {
	d := float64(b.Initial)
	for i := 1; i < attempt && d < float64(b.Max); i++ {
		d *= b.Factor
	}
	d = min(d, float64(b.Max))
	return time.Duration(d * (0.9 + 0.2*random))
}

// Plain reports whether the success of a run of the job requires no further work: no block slot to release, no child, no next
// fire time of a fixed_delay schedule, no join of a broadcast, and no alert about a recovery or a late start.
func (s *JobSpec) Plain() bool {
	return !s.NeedsSlot() && len(s.Children) == 0 && s.Schedule.Kind != ScheduleFixedDelay && s.Route != RouteBroadcast &&
		!s.Alert.Wants(AlertRecovered) && !s.Alert.Wants(AlertLate)
}

// NeedsSlot reports whether runs of the job take a block slot. Only runs with the policy parallel do not.
func (s *JobSpec) NeedsSlot() bool { return s.Block != BlockParallel }
