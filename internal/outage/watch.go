package outage

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

const (
	// for20s is how long the alerts wait, except those about single processes. A rolling restart is no trouble.
	for20s = 20 * time.Second
	// silentAfter is how old the newest sign of life of a scheduler is when none of them works. Each of them gives one every two seconds.
	silentAfter = 20 * time.Second
	// crowdedAt is the share of taken connections, in percent, that the alert has too.
	crowdedAt = 90

	// A process counts as one of its role when it has been seen for establishedAfter. It is missing when it has not been seen for goneAfter,
	// and forgotten after forgetAfter, because then the role was probably made smaller on purpose.
	establishedAfter = 10 * time.Minute
	goneAfter        = time.Minute
	forgetAfter      = 24 * time.Hour
	processesKept    = 1000
)

// Server is the state of a server.
type Server struct {
	Name   string // Postgres, NATS or JetStream
	Err    error  // nil: it is available
	Reason Reason // of Err; empty: unknown. Without a reason, admins see Err
}

// State is what Postgres knows about the engine.
type State struct {
	Processes        []Process     // that are connected
	SchedulerSilence time.Duration // since the newest sign of life of a scheduler; negative: there was none yet
	Connections      int64
	MaxConnections   int64 // 0: unknown
	Blockers         []Blocker
}

// Process is a process of a role.
type Process struct{ Role, Name string }

// Blocker is a transaction for which sessions of Belfry wait.
type Blocker struct {
	PID         int
	Application string
	Sessions    int
}

// Watch keeps what is wrong. It is safe for concurrent use. The zero value is ready to use.
type Watch struct {
	mu        sync.Mutex
	present   map[string]seen   // by id; guarded by mu
	processes map[Process]*life // guarded by mu
	sources   map[string]bool   // those that have reported; guarded by mu
}

// seen is a trouble, and how long it must last before it is shown.
type seen struct {
	Trouble
	from   string        // the source that sees it
	grace  time.Duration // how long it must have been seen before it is shown
	latest time.Time     // when it was seen last
}

// life is what is known of a process.
type life struct {
	first, last time.Time
	before      int // processes of its role when it was seen last, those that are established; 0: it is still there
}

// Servers records the states of all servers. ended lists the ids of the troubles that are over.
func (w *Watch) Servers(at time.Time, servers []Server) (ended []string) {
	var now []seen
	down := map[string]bool{}
	for _, s := range servers {
		down[s.Name] = s.Err != nil
	}
	for _, s := range servers {
		if s.Err == nil || s.Name == JetStream && down[NATS] {
			continue
		}
		detail := ""
		if s.Reason == "" {
			detail = s.Err.Error()
		}
		now = append(now, seen{Trouble: Away(s.Name, s.Reason, detail)})
	}
	return w.record("servers", at, now, ServerUnavailable.id(Postgres), ServerUnavailable.id(NATS), ServerUnavailable.id(JetStream))
}

// NATSServers records which servers of a NATS cluster do not answer. If all of them are silent, the question went wrong.
func (w *Watch) NATSServers(at time.Time, silent []string, of int) (ended []string) {
	var now []seen
	if n := len(silent); n > 0 && n < of {
		now = append(now, seen{Trouble: silentServers(silent, of)})
	}
	return w.record("nats", at, now, ServerUnavailable.id(NATSServers))
}

// State records what Postgres knows about the engine.
func (w *Watch) State(at time.Time, s State) (ended []string) {
	var now []seen
	if len(s.Blockers) > 0 {
		now = append(now, seen{Trouble: blockedBy(s.Blockers), grace: for20s})
	}
	if s.MaxConnections > 0 && 100*s.Connections > crowdedAt*s.MaxConnections {
		now = append(now, seen{Trouble: crowded(s.Connections, s.MaxConnections), grace: for20s})
	}
	running := map[string]int{}
	for _, p := range s.Processes {
		running[p.Role]++
	}
	if n := running[Scheduler] + running[standalone]; n == 0 || s.SchedulerSilence < 0 || s.SchedulerSilence > silentAfter {
		now = append(now, seen{Trouble: noRole(Scheduler, n), grace: for20s})
	}
	if running[Dispatcher]+running[standalone] == 0 {
		now = append(now, seen{Trouble: noRole(Dispatcher, 0), grace: for20s})
	}
	for _, t := range w.missing(at, s.Processes, running) {
		now = append(now, seen{Trouble: t})
	}
	return w.record("state", at, now, PostgresBlocked.id(locks), PostgresConnections.id(taken), RoleMissing.id(Scheduler), RoleMissing.id(Dispatcher))
}

// missing returns the roles that have fewer processes than before, but some.
func (w *Watch) missing(at time.Time, present []Process, running map[string]int) []Trouble {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.processes == nil {
		w.processes = map[Process]*life{}
	}
	w.age(at, present)
	before, gone := map[string]int{}, map[string][]string{}
	for p, l := range w.processes {
		if l.before == 0 {
			continue
		}
		if running[p.Role] >= l.before || at.Sub(l.last) > forgetAfter {
			delete(w.processes, p)
			continue
		}
		if at.Sub(l.last) >= goneAfter {
			before[p.Role] = max(before[p.Role], l.before)
			gone[p.Role] = append(gone[p.Role], p.Name)
		}
	}
	var out []Trouble
	for role, n := range before {
		if missing := role == Scheduler || role == Dispatcher; !missing || running[role] > 0 {
			out = append(out, fewer(role, running[role], n, gone[role]))
		}
	}
	return out
}

// age records which processes are present, and how many of its role were established when a process was seen last.
func (w *Watch) age(at time.Time, present []Process) {
	here := map[Process]bool{}
	for _, p := range present {
		here[p] = true
	}
	established := map[string]int{}
	for p, l := range w.processes {
		if l.before == 0 && l.last.Sub(l.first) >= establishedAfter {
			established[p.Role]++
		}
	}
	for p, l := range w.processes {
		switch {
		case here[p] || l.before > 0:
		case l.last.Sub(l.first) < establishedAfter:
			delete(w.processes, p)
		default:
			l.before = established[p.Role]
		}
	}
	for p := range here {
		l := w.processes[p]
		if l == nil && len(w.processes) >= processesKept {
			continue
		}
		if l == nil {
			l = &life{first: at}
			w.processes[p] = l
		}
		l.last, l.before = at, 0
	}
}

// record replaces what a source has seen. It returns the ids of the troubles that are over. At the first time, these are all that are not present
// of ids, because they may have ended before this process started.
func (w *Watch) record(from string, at time.Time, now []seen, ids ...string) (ended []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.present == nil {
		w.present, w.sources = map[string]seen{}, map[string]bool{}
	}
	still := map[string]bool{}
	for _, s := range now {
		id := s.ID()
		still[id] = true
		s.Since, s.from, s.latest = at, from, at
		if was, known := w.present[id]; known {
			s.Since = was.Since
		}
		w.present[id] = s
	}
	for id, s := range w.present {
		if s.from == from && !still[id] {
			delete(w.present, id)
			ended = append(ended, id)
		}
	}
	if !w.sources[from] {
		w.sources[from] = true
		ended = append(ended, slices.DeleteFunc(ids, func(id string) bool { return still[id] })...)
	}
	slices.Sort(ended)
	return ended
}

// Troubles returns what is wrong, in the order in which it should be read: servers before roles, because roles need the servers.
func (w *Watch) Troubles() []Trouble {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Trouble
	for _, s := range w.present {
		if s.latest.Sub(s.Since) >= s.grace {
			out = append(out, s.Trouble)
		}
	}
	slices.SortFunc(out, func(a, b Trouble) int {
		return cmp.Or(slices.Index(Kinds, a.Kind)-slices.Index(Kinds, b.Kind), cmp.Compare(a.Key, b.Key))
	})
	return out
}
