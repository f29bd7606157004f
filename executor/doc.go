// Package executor lets a Go program run jobs of Belfry. A program makes an Executor, names its handlers, and
// calls Run:
//
//	e, err := executor.New(executor.Config{NATSURL: "nats://belfry:4222", Token: token, Group: "billing"})
//	e.Handle("invoice", func(ctx context.Context, run executor.Run) error { … })
//	err = e.Run(ctx)
//
// Everything goes out over one NATS connection; no port is opened. Any number of instances may serve one group.
//
// # What is guaranteed
//
// Each attempt of a run is started at most once, by this process or another. It is bound in Belfry's database to
// one boot of one instance before it is offered; an instance starts what was offered to its own boot, once,
// however often the offer comes, and only while it holds its lease. Whether an attempt is tried again is decided
// by the job's retry policy alone. So a handler that must not run twice is safe in a job without retries.
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
//	unknown ----------> accepted ----------> running ----------> done ----------> (60 s) forgotten
//	   |  \                 |   drain, kill, lease over           ^
//	   |   \ refused        +-------------------------------------+ as unstarted
//	   |    `----> judged anew only under a higher bind
//	   | kill
//	   `----> barred
//
// Accepted takes one of Capacity slots. The slot is free again when the result is on disk. An instance has no
// queue: what has no slot is refused, and Belfry routes it elsewhere or lets it wait.
//
// # The lease
//
// A heartbeat goes out every 3 s. The lease lasts 10 s from the sending of the last heartbeat that the server
// confirmed; elapsed time is the larger of what the wall clock and the monotonic clock say, so that neither a
// suspended machine nor a stopped process believes too long. While the lease is over nothing is started: offers
// are refused, and what was accepted and comes due is reported as unstarted. What already runs goes on. When the
// lease comes back after a lapse, offers bound before that are refused too, for Belfry may have given them away.
//
// # What happens when
//
//   - A duplicate or late offer: an attempt that was accepted before is accepted again and not started again; one
//     bound more than 10 s ago is refused. Both are judged on the database's clock, whose reading every offer
//     carries.
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
//     DrainTimeout to end before their contexts are cancelled, results and logs are sent, Run returns nil.
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
// the later process of two gets the runs; the earlier one logs an error every 10 s, its lease runs out, it starts
// nothing more, leaves what is asked of the other unanswered, and comes back when that one is gone. What it ran when the name was taken ends as lost.
package executor
