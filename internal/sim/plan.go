package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

// plan is the part of a world that its seed decides before the start: the cluster, the jobs, and the steps.
type plan struct {
	calm     bool // nothing breaks
	stalls   bool // nothing breaks, but schedulers stall for a second or two
	rolling  bool // nothing breaks, but each process is stopped in order and started again, one after the other
	crowded  bool // instances have one slot, and processes freeze when they have received the answer to an offer
	freezes  bool // in addition to other faults, processes that hold attempts freeze for longer than a heartbeat is valid
	siege    bool // in addition to other faults, another client makes NATS refuse heartbeats, while executors freeze
	narrow   bool // dispatchers hold one message of results of each group, so that others go to the overflow
	capacity int
	nodes    []nodePlan
	jobs     []jobPlan
	steps    []step
}

type nodePlan struct {
	name  string
	role  role
	group string
}

// jobPlan is a job. Its children are indexes of earlier jobs of the plan.
type jobPlan struct {
	spec     domain.JobSpec
	children []int
}

// step is one act of the user or the nemesis.
type step struct {
	at time.Duration
	do func(*World)
}

func newPlan(seed uint64) plan {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := plan{
		calm: seed%10 == 0, stalls: seed%10 == 5, rolling: seed%20 == 8, crowded: seed%10 == 3, freezes: seed%5 == 2, siege: seed%10 == 9, narrow: seed%4 == 1, capacity: []int{1, 2, 4, 16}[rng.IntN(4)],
		nodes: []nodePlan{
			{"s1", schedulerRole, ""}, {"s2", schedulerRole, ""}, {"d1", dispatcherRole, ""}, {"d2", dispatcherRole, ""},
			{"e1", executorRole, "g"}, {"e2", executorRole, "g"}, {"e3", executorRole, "h"},
		},
	}
	if p.calm || p.stalls || p.rolling {
		p.capacity = 16
	}
	n := 6 + rng.IntN(5)
	for i := range n {
		p.jobs = append(p.jobs, newJob(rng, i))
	}
	if p.crowded {
		p.capacity = 1
		for i := range p.jobs {
			s := &p.jobs[i].spec
			s.Block, s.Schedule = domain.BlockParallel, domain.Schedule{Kind: domain.ScheduleCron, Expr: pick(rng, "* * * * * *", "*/2 * * * * *")}
		}
	}
	for range 5 + rng.IntN(10) {
		p.steps = append(p.steps, p.userStep(rng))
	}
	switch {
	case p.crowded:
		for i := range 11 {
			p.steps = append(p.steps, crowdStep(rng, i))
		}
	case p.calm:
	case p.rolling:
		p.steps = append(p.steps, rollingStep(rng))
	case p.stalls:
		for i := range stalls {
			p.steps = append(p.steps, stallStep(rng, i))
		}
	default:
		for range 1 + rng.IntN(7) {
			p.steps = append(p.steps, p.faultStep(rng))
		}
	}
	if p.freezes {
		p.addFreezes(rand.New(rand.NewPCG(seed, 7)))
	}
	if p.siege {
		p.addSiege(rand.New(rand.NewPCG(seed, 8)))
	}
	return p
}

// addFreezes adds freezes of executors between the acceptance and the start of an attempt. In half of the cases, a scheduler or
// dispatcher freezes too, between binding and offering an attempt. Most freezes last until the attempt is declared lost.
func (p *plan) addFreezes(rng *rand.Rand) {
	for i := range 6 {
		instance := fmt.Sprintf("e%d", 1+i%3)
		lasts := 9*time.Second + time.Duration(rng.Int64N(int64(7*time.Second)))
		point, skip := pick(rng, "due", "start"), rng.Int64N(6)
		s := step{at: 3*time.Second + time.Duration(i)*6*time.Second}
		if rng.IntN(2) == 0 {
			s.do = func(w *World) { w.nemesis.crashAt(instance, &trap{point: point, freeze: lasts}, skip, 0) }
		} else {
			sender := pick(rng, "s1", "s2", "d1", "d2")
			more := time.Duration(rng.Int64N(int64(3 * time.Second)))
			s.do = func(w *World) {
				w.nemesis.crashAt(sender, &trap{point: "bound", freeze: lasts + more, also: func() { w.nemesis.freezeAll(lasts, "e1", "e2", "e3") }}, skip, 0)
			}
		}
		p.steps = append(p.steps, s)
	}
}

// addSiege makes another client disturb the heartbeats of some executors for most of the time, and freezes executors meanwhile.
func (p *plan) addSiege(rng *rand.Rand) {
	victims := []string{"g.e1", "g.e2", "h.e3"}[rng.IntN(3):]
	period := time.Duration(5+rng.IntN(300)) * time.Millisecond
	p.steps = append(p.steps, step{at: 2 * time.Second, do: func(w *World) { w.nemesis.siege(30*time.Second, period, victims...) }})
	for i := range 2 {
		name := fmt.Sprintf("e%d", 1+rng.IntN(3))
		lasts := 10*time.Second + time.Duration(rng.Int64N(int64(10*time.Second)))
		s := step{at: time.Duration(4+14*i) * time.Second, do: func(w *World) { w.nemesis.freeze(name, lasts) }}
		p.steps = append(p.steps, s)
	}
}

func seconds(n int) domain.Duration { return domain.Duration(time.Duration(n) * time.Second) }

// pick draws one of its arguments.
func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

func newJob(rng *rand.Rand, i int) jobPlan {
	s := domain.DefaultJobSpec()
	s.Group, s.Name, s.Handler = pick(rng, "g", "g", "h"), fmt.Sprintf("job%d", i), handlerName
	s.Misfire = pick(rng, domain.MisfireSkip, domain.MisfireFireOnce, domain.MisfireFireAll)
	s.Block = pick(rng, domain.BlockSerial, domain.BlockSerial, domain.BlockDiscardLater, domain.BlockParallel, domain.BlockCoverEarly)
	s.Route = pick(rng, domain.RouteAny, domain.RouteAny, domain.RouteFirst, domain.RouteLast, domain.RouteRoundRobin, domain.RouteRandom,
		domain.RouteConsistentHash, domain.RouteBroadcast, domain.RouteLeastFrequentlyUsed, domain.RouteLeastRecentlyUsed, domain.RouteFailover,
		domain.RouteBusyover)
	if s.Route == domain.RouteBroadcast {
		s.Shards = pick(rng, 0, 0, 3)
	} else if rng.IntN(3) == 0 {
		s.BlockScope = domain.ScopeInstance
	}
	s.Retries = pick(rng, 0, 0, 1, 3)
	s.RetryBackoff = domain.RetryBackoff{Initial: domain.Duration(300 * time.Millisecond), Factor: 2, Max: seconds(2)}
	s.Timeout = pick(rng, 0, 0, seconds(2), seconds(20))
	s.StartDeadline = pick(rng, seconds(5), seconds(60), seconds(600))
	if i%4 == 3 { // the executor has to request the code in another message
		s.Handler, s.Script = "", &domain.Script{Language: scriptLanguage, Code: s.Name}
	}
	reschedule(rng, &s)
	p := jobPlan{spec: s}
	if i > 0 && rng.IntN(3) == 0 {
		p.children = append(p.children, rng.IntN(i))
	}
	return p
}

// reschedule draws a schedule.
func reschedule(rng *rand.Rand, s *domain.JobSpec) {
	begin := domain.At(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rng.IntN(4)) * 250 * time.Millisecond))
	switch dice := rng.IntN(12); {
	case dice < 5:
		s.Schedule = domain.Schedule{Kind: domain.ScheduleFixedRate, Every: seconds(pick(rng, 1, 2, 3, 5, 8)), StartAt: &begin}
		if rng.IntN(3) == 0 {
			s.Schedule.Jitter = domain.Duration(700 * time.Millisecond)
		}
	case dice < 8:
		s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: pick(rng, "* * * * * *", "*/2 * * * * *", "*/5 * * * * *", "7,21,33,48 * * * * *")}
	case dice < 9:
		s.Schedule = domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: seconds(pick(rng, 1, 3))}
	case dice < 10:
		at := domain.At(time.Date(2000, 1, 1, 0, 0, 5+rng.IntN(30), 0, time.UTC))
		s.Schedule = domain.Schedule{Kind: domain.ScheduleOnce, At: &at}
	default:
		s.Schedule = domain.Schedule{Kind: domain.ScheduleNone}
	}
}

// userStep draws a change or a trigger of jobs.
func (p *plan) userStep(rng *rand.Rand) step {
	s := step{at: time.Second + time.Duration(rng.Int64N(int64(loadFor-2*time.Second)))}
	i := rng.IntN(len(p.jobs))
	draw := rng.Uint64()
	switch dice := rng.IntN(20); {
	case dice < 4:
		s.do = func(w *World) { w.user.edit(i, func(sp *domain.JobSpec) { sp.Description += "." }) }
	case dice < 7:
		s.do = func(w *World) {
			w.user.edit(i, func(sp *domain.JobSpec) { reschedule(rand.New(rand.NewPCG(draw, 4)), sp) })
		}
	case dice < 10:
		s.do = func(w *World) { w.user.edit(i, func(sp *domain.JobSpec) { sp.Enabled = !sp.Enabled }) }
	case dice < 17:
		n := 1 + rng.IntN(5)
		s.do = func(w *World) { w.user.trigger(i, n) }
	case dice < 19:
		s.do = func(w *World) { w.user.kill(draw) }
	default:
		s.do = func(w *World) { w.user.remove(i) }
	}
	return s
}

// skewMax is the largest error with which a process measures the database's clock.
const skewMax = 3 * time.Second

// stallMax is the longest stall in a world of stalls. It is too short for another scheduler to take over runs.
const stallMax = 1500 * time.Millisecond

// stalls is the number of stalls, which do not overlap.
const stalls = 8

// stallStep returns the i-th stall of a scheduler.
func stallStep(rng *rand.Rand, i int) step {
	lasts := stallMax - time.Duration(rng.Int64N(int64(400*time.Millisecond)))
	name := pick(rng, "s1", "s2")
	return step{
		at: 6*time.Second + time.Duration(i)*4*time.Second + time.Duration(rng.Int64N(int64(2*time.Second))),
		do: func(w *World) { w.nemesis.freeze(name, lasts) },
	}
}

// rollingLatest is how late a run may be in a world of orderly restarts.
const rollingLatest = 250 * time.Millisecond

// rollingStep returns the orderly restarts of all processes that have a substitute, again and again.
func rollingStep(rng *rand.Rand) step {
	names := []string{"s1", "d1", "e1", "s2", "d2", "e2"}
	const restarts = 24
	var down, rest []time.Duration
	for range restarts {
		down = append(down, time.Duration(rng.Int64N(int64(time.Second))))
		rest = append(rest, 100*time.Millisecond+time.Duration(rng.Int64N(int64(900*time.Millisecond))))
	}
	return step{at: 5 * time.Second, do: func(w *World) {
		for i := range restarts {
			w.nemesis.restart(names[i%len(names)], down[i])
			time.Sleep(rest[i])
		}
	}}
}

// crowdStep freezes a process that has just received the answer to an offer, until other processes have asked about the offer.
func crowdStep(rng *rand.Rand, i int) step {
	name := []string{"s1", "d1", "s2", "d2"}[i%4]
	lasts := 2800*time.Millisecond + time.Duration(rng.Int64N(int64(2*time.Second)))
	skip := rng.Int64N(4)
	return step{
		at: 4*time.Second + time.Duration(i)*3*time.Second,
		do: func(w *World) { w.nemesis.crashAt(name, &trap{point: "offered", freeze: lasts}, skip, 0) },
	}
}

// points are the places at which a process of a role may crash: points of its code, and messages.
var points = map[role][]string{
	schedulerRole: {
		"after PlanDue", "after ClaimNear", "before Admit", "after Admit", "bound", "offered", "after PlanStranded", "hears _INBOX",
		"sends belfry.v1.trigger",
	},
	dispatcherRole: {
		"before Settle", "after Settle", "after AssignWaiting", "bound", "offered", "after RaiseBinds", "after Unbind", "after Replan",
		"after PlanChild", "sends $JS.ACK", "hears belfry.v1.result", "sends belfry.v1.control", "sends belfry.v1.trigger", "after MarkRunning",
	},
	executorRole: {
		"hears belfry.v1.trigger", "sends belfry.v1.result", "hears belfry.v1.control", "sends _INBOX", "sends $KV", "hears _INBOX",
	},
}

// faultStep draws a fault.
func (p *plan) faultStep(rng *rand.Rand) step {
	s := step{at: 3*time.Second + time.Duration(rng.Int64N(int64(loadFor-8*time.Second)))}
	n := p.nodes[rng.IntN(len(p.nodes))]
	short := 100*time.Millisecond + time.Duration(rng.Int64N(int64(3*time.Second)))
	long := time.Second + time.Duration(rng.Int64N(int64(22*time.Second)))
	lasts := pick(rng, short, short, long)
	share := pick(rng, 0.01, 0.05, 0.2)
	switch dice := rng.IntN(28); {
	case dice >= 25:
		name := pick(rng, "s1", "s2", "d1", "d2")
		point := pick(rng, "offered", "offered", "bound", "before Settle", "after Settle")
		skip := rng.Int64N(12)
		s.do = func(w *World) { w.nemesis.crashAt(name, &trap{point: point, freeze: lasts + 2*time.Second}, skip, 0) }
	case dice >= 22:
		name := pick(rng, "e1", "e2", "e3")
		s.do = func(w *World) { w.nemesis.loseBoth(name, lasts) }
	case dice < 3:
		disk := n.role == executorRole && rng.IntN(3) == 0
		s.do = func(w *World) { w.nemesis.crash(n.name, lasts, disk) }
	case dice < 9:
		point := points[n.role][rng.IntN(len(points[n.role]))]
		skip := rng.Int64N(12)
		s.do = func(w *World) { w.nemesis.crashAt(n.name, &trap{point: point}, skip, lasts) }
	case dice < 10:
		s.do = func(w *World) { w.nemesis.restart(n.name, lasts) }
	case dice < 13:
		s.do = func(w *World) { w.nemesis.freeze(n.name, lasts) }
	case dice < 16:
		s.do = func(w *World) { w.nemesis.cutOff(n.name, lasts) }
	case dice < 18:
		wipe := rng.IntN(2) == 0
		s.do = func(w *World) { w.nemesis.restartNATS(lasts, wipe) }
	case dice < 19:
		s.do = func(w *World) { w.nemesis.databaseAway(lasts) }
	case dice < 20:
		s.do = func(w *World) { w.nemesis.troubleStore(share/2, share/2, lasts) }
	case dice < 21:
		s.do = func(w *World) { w.nemesis.troubleNetwork(share/2, share, lasts) }
	default:
		skew := time.Duration(rng.Int64N(int64(2*skewMax))) - skewMax
		s.do = func(w *World) { w.nemesis.skew(n.name, skew) }
	}
	return s
}

// describe returns a description of the cluster and its jobs. The journal records the steps.
func (p *plan) describe() string {
	kinds := make([]string, len(p.jobs))
	for i, j := range p.jobs {
		kinds[i] = fmt.Sprintf("%d: %s/%s %s %s/%s %s shards %d, misfire %s, retries %d, timeout %s, deadline %s, children %v", i+1, j.spec.Group, j.spec.Name,
			j.spec.Schedule.Kind, j.spec.Block, j.spec.BlockScope, j.spec.Route, j.spec.Shards, j.spec.Misfire, j.spec.Retries,
			j.spec.Timeout.Std(), j.spec.StartDeadline.Std(), j.children)
	}
	return fmt.Sprintf("calm %v, capacity %d, jobs:\n  %s", p.calm, p.capacity, strings.Join(kinds, "\n  "))
}
