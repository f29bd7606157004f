// Package executor lets a Go program run jobs of Belfry. A program makes an Executor, names its handlers, and
// calls Run:
//
//	e, err := executor.New(executor.Config{NATSURL: "nats://belfry:4222", Token: token, Group: "billing"})
//	e.HandleFunc("invoice", func(ctx context.Context, run executor.Run) error { … })
//	err = e.Run(ctx)
//
// Everything goes out over one NATS connection; no port is opened. Any number of instances may serve one group.
//
// # What is guaranteed
//
// Each attempt of a run is started at most once, by this process or another. It is bound in Belfry's database to
// one boot of one instance before it is offered; an instance starts what was offered to its own boot, once, however often
// the offer comes, and not after Belfry may have declared the attempt lost: see "The fence". Whether an attempt is tried
// again is decided by the job's retry policy alone. So a handler that must not run twice is safe in a job without retries.
//
// A process can be frozen between the last check and the first instruction of the handler. No program can exclude that. A
// handler for which this matters uses the run's id and the attempt's number as a key where it writes.
//
// A result, once the handler has returned, is not forgotten: it is on this machine's disk before it is sent, and
// leaves the disk only when Belfry says that it is in the database.
//
// # Who holds the truth
//
// The database of Belfry does. An instance holds two things of its own: in memory, the ledger of the attempts
// that it was offered, from which it answers; on disk, the spool of results that are not settled yet. One boot of
// an instance is one call of Run; it has a boot id of its own.
//
// # An attempt, as its instance sees it
//
//	           offer                due                    handler returned        settled
//	unknown ----------> accepted ----------> running ----------> done ----------> (10 min) forgotten
//	   |  \                 |   drain, kill, too late             ^
//	   |   \ refused        +-------------------------------------+ as unstarted
//	   |    `----> judged anew only under a higher bind
//	   | kill
//	   `----> barred
//
// Accepted takes one of Capacity slots. The slot is free again when the result is on disk. An instance has no
// queue: what has no slot is refused, and Belfry routes it elsewhere or lets it wait.
//
// An offer of an attempt that this boot has run is answered "ended", with the outcome. So a database that has lost the end
// of the attempt, after a failover or a restore, settles it and does not run it again. Outcomes are remembered for 10 minutes,
// and for at most 200,000 attempts beside those of the last 20 s.
//
// # The fence
//
// A heartbeat goes out every 3 s. Heartbeats are numbered: 1, 2, … within a boot. Before the executor sends number k, it notes
// the time T[k]. An offer names the heartbeat that it relies on, its beat: one that Belfry had received before it bound the
// attempt. The attempt may start only before T[beat] + 10 s. Elapsed time is what the clock says that says most: the wall
// clock, the monotonic clock, or on Linux the clock that continues during a suspend. No two machines' clocks are compared.
//
//   - If an offer arrives after that limit, or names an unknown beat, it is refused as stale.
//   - The executor checks the limit again when the attempt is due, and a last time directly before it calls the handler. If
//     the limit has passed, it reports the attempt as unstarted, and Belfry routes the attempt again.
//
// Belfry declares an attempt lost only after it has received no heartbeat of the boot for 10 s. Package dispatcher has the
// proof that no lost attempt starts. Attempts that run go on, whatever happens to the heartbeats.
//
// The handler starts due_at - now after the offer has arrived, by the monotonic clock, where now is the database's clock when
// the offer was sent. So a start is never early.
//
// An offer without a beat comes from an older server. It follows the old rules, which have a hole: a lease of 10 s from the
// last confirmed heartbeat, no offers that were bound over 10 s ago, and nothing that was offered before a lapse of the lease.
// They go away when those servers are no longer supported.
//
// # What happens when
//
//   - A duplicate or late offer: an attempt that was accepted before is accepted again and not started again; an offer
//     that comes too late is refused.
//   - The process is frozen, or its machine is suspended: what was accepted and not started when the limit passed is handed
//     back on waking. Handlers that ran go on; their attempts may have been declared lost meanwhile.
//   - The process dies: its running attempts end as lost within 15 s and follow the retry policy. Results in the
//     spool are sent by the next process with the same Instance and SpoolDir, under the boot id they ran under.
//   - NATS is away, at the start or later: Run keeps trying for ever. Handlers that run go on; their results wait
//     in the spool, their log lines in a bounded buffer whose oldest lines give way, with a line saying how many.
//   - A program says more than can be sent: its output is read more slowly, for as long as NATS takes lines.
//   - The token is missing, wrong or another group's: an error says so, and Run keeps trying, every 30 s in the end, for
//     a token may be issued anew.
//   - The disk is full, or the spool is: offers are refused until there is room again; results are kept in memory
//     and sent from there.
//   - A handler panics: that attempt fails with reason handler_panic and the stack; the process goes on.
//   - A handler exceeds the job's timeout: its context is cancelled, the attempt fails with reason timeout once it
//     returns. A handler that ignores its context keeps its slot.
//   - A run is killed: the same, and the attempt ends cancelled, unless the handler still returned nil.
//   - Run's context is cancelled: nothing more is taken, accepted attempts are handed back, running ones have
//     DrainTimeout to end before their contexts are cancelled and they end as drained, results and logs are sent, the
//     heartbeat is taken back, Run returns nil.
//
// # Scripts
//
// A program may also run the scripts that jobs hold, by RegisterScripts; package scripts has a runner for the usual
// languages. The code comes over the same connection, by digest, the first time that this instance accepts it, and is
// kept in a directory "scripts" of the spool, bounded in size and compared with its digest at each use. An attempt whose
// code does not come within 10 s is handed back.
//
// # The instance name and the spool
//
// The spool of an instance is a directory "<group>.<instance>" below SpoolDir, locked by its process. A restarted
// process finds its spool only under the same instance name. Without Instance, the first unlocked directory of
// this group and host is taken with its name, else a new one is made with a random ending: so the name stays the
// same for as long as the spool directory does, and two processes on one host get two names. In a container, give
// SpoolDir a volume that outlives the container, and Instance a stable name such as that of the stateful set's pod.
//
// No two processes of a group may have one name. The first heartbeat of a boot takes the name over, so that a restart
// need not wait; each later one is stored only if the last one under the name is this boot's own, or there is none. So
// the later process of two gets the runs; the earlier one logs an error every 10 s, is offered nothing more, leaves what is asked of the other unanswered, and comes back when that one is gone. What it ran when the name was taken ends as lost.
package executor
