package explain

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Args are the arguments of a code by name: int64, string, bool, or a list of Args.
type Args map[string]any

// UnmarshalJSON reads arguments with the types that Args has elsewhere.
func (a *Args) UnmarshalJSON(b []byte) error {
	var values map[string]any
	if err := json.Unmarshal(b, &values); err != nil {
		return err
	}
	*a = typed(values)
	return nil
}

func typed(values map[string]any) Args {
	out := make(Args, len(values))
	for name, v := range values {
		switch v := v.(type) {
		case float64:
			out[name] = int64(v)
		case []any:
			items := make([]Args, 0, len(v))
			for _, item := range v {
				fields, _ := item.(map[string]any)
				items = append(items, typed(fields))
			}
			out[name] = items
		default:
			out[name] = v
		}
	}
	return out
}

// Kind is the kind of an argument.
type Kind int

// The kinds of arguments.
const (
	Number Kind = iota
	String
	Flag
	Lists // items with fields of their own
)

func (k Kind) zero() any {
	switch k {
	case Number:
		return int64(0)
	case String:
		return ""
	case Flag:
		return false
	case Lists:
	}
	return []Args{}
}

// Param is the name and kind of an argument.
type Param struct {
	Name  string
	Kind  Kind
	Items []Param // of Lists: the fields of an item
}

// Params returns the arguments of a code in the order in which a Note stores them.
func Params(c Code) []Param { return table[c].args }

// entry is the table's entry for a code.
type entry struct {
	args    []Param
	english func(Args) string
}

func num(name string) Param  { return Param{Name: name, Kind: Number} }
func text(name string) Param { return Param{Name: name, Kind: String} }
func flag(name string) Param { return Param{Name: name, Kind: Flag} }

func list(name string, fields ...Param) Param {
	return Param{Name: name, Kind: Lists, Items: fields}
}

// The arguments that several codes share.
var (
	slots  = list("slots", text("instance"), num("taken"), num("capacity")) // of some instances; more counts the others
	passed = list("passed", text("instance"), flag("answered"), num("runs"))
	pauses = list("pauses", text("group"), text("from"), text("to"), text("by"), text("reason"), flag("over"), flag("job")) // job: of the job itself
	more   = num("more")
	full   = num("full")     // instances that had no free slot
	others = text("avoided") // the instance that had the run before and was left out
)

// Outcomes of the argument "misfire": what the misfire policy did with the missed fire times.
const (
	OutcomeSkip     = "skip"
	OutcomeFireOnce = "fire_once"
	OutcomeFireAll  = "fire_all"
	OutcomeChanged  = "job_changed" // the job was changed, so that they are dropped
)

// table has an entry for each code. The order of the arguments is stored, see the package comment.
var table = map[Code]entry{
	NoInstance: {nil, constant("no live instance is in the group")},
	NoHandler:  {[]Param{text("language")}, func(a Args) string { return "no live instance " + offers(a, "offers the handler", "runs scripts in ") }},
	Draining: {[]Param{text("language")}, func(a Args) string {
		return "no live instance takes new runs: those that " + offers(a, "offer the handler", "run scripts in ") + " are draining"
	}},
	Unfit: {[]Param{text("language")}, func(a Args) string {
		return "no live instance takes new runs: those that " + offers(a, "offer the handler", "run scripts in ") + " report a problem, or are draining"
	}},
	NoRoom:          {[]Param{slots, more}, func(a Args) string { return "no free slot: " + a.slots() }},
	PinnedGone:      {[]Param{text("instance"), text("language")}, pinnedGone},
	NATSUnavailable: {nil, constant("NATS is away")},
	BehindOthers:    {nil, constant("behind runs that wait already")},
	AskingInstances: {nil, constant("its instances are being asked")},
	NoAnswer:        {[]Param{passed, more}, func(a Args) string { return "no instance answered a ping" + a.passed(": ") }},
	AllBusy:         {[]Param{passed, more}, func(a Args) string { return "no instance is idle for the job" + a.passed(": ") }},
	Refused:         {[]Param{text("instance"), text("reason")}, func(a Args) string { return a.text("instance") + " refused: " + a.text("reason") }},
	InstanceAbsent:  {[]Param{text("instance")}, func(a Args) string { return a.text("instance") + " was not there" }},
	NotStarted:      {[]Param{text("instance")}, func(a Args) string { return a.text("instance") + " will not start it" }},
	StartFailed:     {nil, constant("the instance that had accepted it could not start it")},
	EarlierRun:      {nil, constant("an earlier run of the job is unfinished")},
	CoveredRun:      {nil, constant("the run of the job that it covers has not ended yet")},

	InstanceDraining: {nil, constant("it is draining")},
	InstanceFull: {[]Param{num("taken"), num("capacity")}, func(a Args) string {
		return fmt.Sprintf("%d of its %d slots are taken", a.num("taken"), a.num("capacity"))
	}},
	InstanceOutOfFiles:      {[]Param{text("message")}, func(a Args) string { return "its process has too few free file descriptors: " + a.text("message") }},
	InstanceSpoolFull:       {[]Param{text("message")}, func(a Args) string { return "there is no room for results on its disk: " + a.text("message") }},
	InstanceSpoolUnwritable: {[]Param{text("message")}, func(a Args) string { return "it cannot write results to its disk: " + a.text("message") }},
	InstanceUnfit: {[]Param{text("reason"), text("message")}, func(a Args) string {
		return "it takes no runs for another reason: " + a.text("reason") + ": " + a.text("message")
	}},
	InstanceSilent: {[]Param{num("age_ms")}, func(a Args) string {
		return fmt.Sprintf("its last heartbeat is %s old, too old for an offer", a.duration("age_ms").Round(time.Second))
	}},
	InstanceRefused:       {[]Param{text("reason")}, func(a Args) string { return "it has just refused an offer although it had room: " + a.text("reason") }},
	InstanceOffersNothing: {nil, constant("it has neither handlers nor script languages")},

	AskedByName: routed(nil, constant("asked for by name")),
	OnlyInstance: routed([]Param{text("route")}, func(a Args) string {
		return a.text("route") + ": the only instance with a free slot"
	}),
	LeastLoaded: routed([]Param{num("instances"), num("taken"), num("capacity")}, func(a Args) string {
		return fmt.Sprintf("any: the least loaded of %d, %d of %d slots taken", a.num("instances"), a.num("taken"), a.num("capacity"))
	}),
	First: routed([]Param{num("instances")}, func(a Args) string { return fmt.Sprintf("first of %d by name", a.num("instances")) }),
	Last:  routed([]Param{num("instances")}, func(a Args) string { return fmt.Sprintf("last of %d by name", a.num("instances")) }),
	RoundRobin: routed([]Param{num("instances"), num("turn"), num("number")}, func(a Args) string {
		return fmt.Sprintf("round_robin: turn %d, number %d of %d", a.num("turn"), a.num("number"), a.num("instances"))
	}),
	Random: routed([]Param{num("instances")}, func(a Args) string { return fmt.Sprintf("random: one of %d", a.num("instances")) }),
	ConsistentHash: routed([]Param{num("instances"), text("key")}, func(a Args) string {
		return fmt.Sprintf("consistent_hash of %q over %d", a.text("key"), a.num("instances"))
	}),
	LeastFrequentlyUsed: routed([]Param{num("instances"), num("runs")}, func(a Args) string {
		return fmt.Sprintf("least_frequently_used: given %s today, the fewest of %d", runs(a.num("runs")), a.num("instances"))
	}),
	LeastRecentlyUsed: routed([]Param{num("instances"), num("turn")}, func(a Args) string {
		return fmt.Sprintf("least_recently_used: last used at turn %d, the longest ago of %d", a.num("turn"), a.num("instances"))
	}),
	NotUsedYet: routed([]Param{num("instances")}, func(a Args) string {
		return fmt.Sprintf("least_recently_used: not used yet, of %d", a.num("instances"))
	}),
	Failover: routed([]Param{num("instances"), num("number"), passed, more}, func(a Args) string {
		return fmt.Sprintf("failover: number %d of %d by name, the first that answered a ping", a.num("number"), a.num("instances")) + a.passed("; ")
	}),
	Busyover: routed([]Param{num("instances"), num("number"), passed, more}, func(a Args) string {
		return fmt.Sprintf("busyover: number %d of %d by name, the first that is idle for the job", a.num("number"), a.num("instances")) + a.passed("; ")
	}),
	BroadcastShard: {[]Param{num("shard"), num("total")}, func(a Args) string {
		return fmt.Sprintf("broadcast: shard %d of %d", a.num("shard"), a.num("total"))
	}},
	NotExpanded: {nil, constant("broadcast, not expanded yet")},

	NoScheduler: {[]Param{text("misfire"), num("latest"), num("tolerance_ms"), num("late_ms"), pauses}, func(a Args) string {
		because := fmt.Sprintf("no scheduler served them within %s of their due instant (up to %s late)", a.duration("tolerance_ms"), a.duration("late_ms"))
		return a.missedBy(because)
	}},
	GroupPaused: {[]Param{text("misfire"), num("latest"), pauses}, func(a Args) string {
		return strings.Join(a.pauses(), "; ") + a.outcome()
	}},
	JobPaused: {[]Param{text("misfire"), num("latest"), pauses}, func(a Args) string {
		return strings.Join(a.pauses(), "; ") + a.outcome()
	}},
	Unexplained: {[]Param{num("version")}, func(a Args) string {
		return fmt.Sprintf("unexplained: the audit found neither a run nor an entry, although version %d of the job held", a.num("version"))
	}},

	ClockStepped: {[]Param{text("misfire"), num("latest"), num("step_ms"), text("from"), text("to"), pauses}, func(a Args) string {
		return a.missedBy(Disturbed(English, "clock_step", a.duration("step_ms"), a.text("from"), a.text("to")))
	}},
	PostgresAway: {[]Param{text("misfire"), num("latest"), text("from"), text("to"), pauses}, func(a Args) string {
		return a.missedBy(Disturbed(English, kindPostgresAway, 0, a.text("from"), a.text("to")))
	}},
	Restored: {[]Param{text("from"), text("to")}, func(a Args) string {
		return Disturbed(English, kindRestored, 0, a.text("from"), a.text("to")) + "; they may have run, and are not run again"
	}},

	EarlierUnfinished: {[]Param{text("run")}, func(a Args) string {
		return "run " + a.text("run") + " of the job was unfinished when this one came due"
	}},
	TooManyHeld:       {[]Param{num("limit")}, func(a Args) string { return fmt.Sprintf("%d runs of the job are held back already", a.num("limit")) }},
	CoveredBy:         {[]Param{text("run")}, func(a Args) string { return "run " + a.text("run") + " of the job covers it" }},
	KilledBy:          {[]Param{text("by")}, func(a Args) string { return "killed by " + a.text("by") }},
	JobDeleted:        {nil, constant("the job was deleted")},
	NeverStarted:      {nil, constant("it had not started")},
	NotTaken:          {[]Param{text("group"), text("handler"), num("deadline_ms")}, func(a Args) string { return a.notTaken(a.text("handler")) }},
	ScriptNotTaken:    {[]Param{text("group"), text("language"), num("deadline_ms")}, func(a Args) string { return a.notTaken("script:" + a.text("language")) }},
	ShardInstanceGone: {[]Param{text("instance")}, func(a Args) string { return "the shard was for " + a.text("instance") + ", which is gone" }},
	OfferTooLarge: {[]Param{num("bytes"), num("limit")}, func(a Args) string {
		return fmt.Sprintf("its param and its parent's output make an offer of %d bytes; at most %d can be sent", a.num("bytes"), a.num("limit"))
	}},
	InstanceDied:   {[]Param{text("instance")}, func(a Args) string { return "instance " + a.text("instance") + " died" }},
	StartBarred:    {nil, constant("the instance is alive, but will not start the attempt")},
	AttemptUnknown: {nil, constant("the instance is alive, but does not know the attempt")},
	ResultLost:     {nil, constant("the instance has finished the attempt and no longer has its result")},
	OutputLost:     {nil, constant("output lost: the attempt had ended before, and its instance remembers only the outcome")},
	NoReport:       {nil, constant("the instance did not report the end of the attempt in time")},
	ResultRefused:  {nil, constant("its result could not be stored; it is among the dead letters")},

	JobEdited: {[]Param{num("from"), num("to"), text("by"), text("at")}, func(a Args) string {
		return fmt.Sprintf("the job was edited, from version %d to version %d, last by %s at %s", a.num("from"), a.num("to"), a.text("by"), a.text("at"))
	}},
	ScriptEdited: {[]Param{num("from"), num("to")}, func(a Args) string {
		return fmt.Sprintf("the script was edited, from version %d to version %d", a.num("from"), a.num("to"))
	}},
	ExecutorChanged: {[]Param{text("from"), text("to")}, func(a Args) string {
		return fmt.Sprintf("the version of the executor changed from %s to %s", a.text("from"), a.text("to"))
	}},
	InstanceChanged: {[]Param{text("from"), text("to")}, func(a Args) string {
		return fmt.Sprintf("the instance changed from %s to %s", a.text("from"), a.text("to"))
	}},

	ServerUnavailable:    engineEntries[ServerUnavailable],
	JetStreamUnavailable: engineEntries[JetStreamUnavailable],
	NATSServersSilent:    engineEntries[NATSServersSilent],
	PostgresBlocked:      engineEntries[PostgresBlocked],
	ConnectionsTaken:     engineEntries[ConnectionsTaken],
	RoleMissing:          engineEntries[RoleMissing],
	ProcessesMissing:     engineEntries[ProcessesMissing],

	Text: {nil, constant("")},
}

func constant(s string) func(Args) string { return func(Args) string { return s } }

// routed adds the arguments that every choice among instances may have: how many instances were full, and which one was
// avoided.
func routed(args []Param, english func(Args) string) entry {
	return entry{append(args, full, others), func(a Args) string {
		s := english(a)
		if n := a.num("full"); n > 0 {
			of, known := a["instances"].(int64)
			if !known {
				of = 1
			}
			s += fmt.Sprintf("; %d of %d instances had no free slot", n, of+n)
		}
		if name := a.text("avoided"); name != "" {
			s += fmt.Sprintf("; not %s, which had it before", name)
		}
		return s
	}}
}

func (a Args) num(name string) int64 {
	n, _ := a[name].(int64)
	return n
}

func (a Args) text(name string) string {
	s, _ := a[name].(string)
	return s
}

func (a Args) flag(name string) bool {
	b, _ := a[name].(bool)
	return b
}

func (a Args) list(name string) []Args {
	l, _ := a[name].([]Args)
	return l
}

func (a Args) duration(name string) time.Duration {
	return time.Duration(a.num(name)) * time.Millisecond
}

func offers(a Args, handler, scripts string) string {
	if language := a.text("language"); language != "" {
		return scripts + language
	}
	return handler
}

// notTaken writes that no instance took a run. Target is what domain.JobSpec.Target returns.
func (a Args) notTaken(target string) string {
	return fmt.Sprintf("no instance of group %s that offers %s took it within %s", a.text("group"), target, a.duration("deadline_ms"))
}

func pinnedGone(a Args) string {
	return fmt.Sprintf("it may only run on %s, which is not there or does not %s", a.text("instance"), offers(a, "offer the handler", "run scripts in "))
}

func runs(n int64) string {
	if n == 1 {
		return "1 run"
	}
	return strconv.FormatInt(n, 10) + " runs"
}

// slots writes how full some instances are.
func (a Args) slots() string {
	var parts []string
	for _, s := range a.list("slots") {
		parts = append(parts, fmt.Sprintf("%s has %d of %d taken", s.text("instance"), s.num("taken"), s.num("capacity")))
	}
	return a.andMore(parts)
}

// passed writes why some instances were passed over, behind a separator.
func (a Args) passed(separator string) string {
	var parts []string
	for _, p := range a.list("passed") {
		if p.flag("answered") {
			parts = append(parts, fmt.Sprintf("%s has %s of the job", p.text("instance"), runs(p.num("runs"))))
		} else {
			parts = append(parts, p.text("instance")+" did not answer")
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return separator + a.andMore(parts)
}

func (a Args) andMore(parts []string) string {
	if n := a.num("more"); n > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(parts, ", ")
}

// pauses describes pauses of the group and the job. The words are those of domain.Pause.Describe.
func (a Args) pauses() []string {
	var out []string
	for _, p := range a.list("pauses") {
		what, from, to := "group "+p.text("group"), p.text("from"), p.text("to")
		if p.flag("job") {
			what = "the job"
		}
		s := fmt.Sprintf("%s was paused from %s to %s", what, from, to)
		switch {
		case to == "":
			s = fmt.Sprintf("%s has been paused since %s", what, from)
		case !p.flag("over"):
			s = fmt.Sprintf("%s is paused from %s to %s", what, from, to)
		}
		s += " by " + p.text("by")
		if reason := p.text("reason"); reason != "" {
			s += " (" + reason + ")"
		}
		out = append(out, s)
	}
	return out
}

// missedBy writes why fire times were missed, besides pauses, and what the misfire policy did.
func (a Args) missedBy(because string) string {
	return strings.Join(append([]string{because}, a.pauses()...), "; ") + a.outcome()
}

// outcome writes what the misfire policy did.
func (a Args) outcome() string {
	switch a.text("misfire") {
	case OutcomeFireOnce:
		return "; fire_once made up for the latest"
	case OutcomeFireAll:
		return fmt.Sprintf("; fire_all makes up for the latest %d", a.num("latest"))
	case OutcomeChanged:
		return "; the job was changed meanwhile"
	}
	return "; the policy is skip"
}
