// Package executor lets a Go program run jobs of Belfry. The program creates an Executor, registers its handlers, and
// calls Run:
//
//	e, err := executor.New(executor.Config{NATSURL: "nats://belfry:4222", Token: token, Group: "billing"})
//	e.HandleFunc("invoice", func(ctx context.Context, run executor.Run) error { … })
//	err = e.Run(ctx)
//
// All traffic uses one outbound NATS connection. The executor opens no port. Any number of instances may serve one
// group.
//
// # What is guaranteed
//
// Each attempt of a run is started at most once, across all processes. Before Belfry offers an attempt, it binds the
// attempt in its database to one boot of one instance. An instance starts only attempts that were offered to its own
// boot. It starts each of them once, however often the offer arrives. It does not start an attempt after Belfry may
// have declared it lost: see "The fence". Only the job's retry policy decides whether an attempt is tried again. A
// handler that must not run twice is therefore safe in a job without retries.
//
// A process can be frozen between the last check and the first instruction of the handler. No program can exclude that.
// A handler for which this matters uses the run's id and the attempt's number as an idempotency key for its writes.
//
// After the handler has returned, its result is not lost. The executor writes the result to disk before it sends it. It
// deletes the result only after Belfry confirms that the result is in the database.
//
// # Where the state is stored
//
// Belfry's database is authoritative. An instance keeps two things itself. The ledger, in memory, holds the
// attempts that were offered to the instance; the instance answers offers from it. The spool, on disk, holds the
// results that are not settled yet. One boot of an instance is one call of Run. Each boot has a different boot id.
//
// # The states of an attempt on its instance
//
//	           offer                due                    handler returned        settled
//	unknown ----------> accepted ----------> running ----------> done ----------> (10 min) forgotten
//	   |  \                 |   drain, kill, too late             ^
//	   |   \ refused        +-------------------------------------+ as unstarted
//	   |    `----> judged again only under a higher bind
//	   | kill
//	   `----> barred
//
// An accepted attempt takes one of Capacity slots. The slot is free again when the result is on disk. An instance has
// no queue. If it has no free slot, it refuses the offer, and Belfry routes the run to another instance or lets it
// wait.
//
// If this boot has already run the offered attempt, the executor answers "ended" with the outcome. If the database lost
// the end of the attempt in a failover or a restore, Belfry settles the attempt from that answer and does not run it
// again. The executor remembers outcomes for 10 minutes and for at most 200,000 attempts. It always remembers the
// outcomes of the last 20 s.
//
// # The fence
//
// The executor sends a heartbeat every 3 s. It numbers the heartbeats of a boot 1, 2, and so on. Before the executor
// sends heartbeat k, it records the time T[k]. Each offer names the heartbeat that it relies on, its beat. Belfry had
// received that heartbeat before it bound the attempt. The attempt may start only before T[beat] + 10 s. The executor
// measures elapsed time on the wall clock, on the monotonic clock, and on Linux on the clock that continues during a
// suspend, and uses the largest of these values. It never compares the clocks of two machines.
//
//   - If an offer arrives after that limit or names an unknown beat, the executor refuses it as stale.
//   - The executor checks the limit again when the attempt is due, and a last time directly before it calls the
//     handler. If the limit has passed, it reports the attempt as unstarted, and Belfry routes the attempt again.
//
// Belfry declares an attempt lost only after it has received no heartbeat of the boot for 10 s. Package dispatcher
// contains the proof that no lost attempt starts. Running attempts continue even if heartbeats fail.
//
// The handler starts due_at - now after the offer has arrived, measured on the monotonic clock. Here now is the
// database's clock when the offer was sent. A start is therefore never early.
//
// An offer without a beat comes from an older server. For it, the executor applies the old rules, which are weaker. The
// attempt needs a lease of 10 s since the last confirmed heartbeat. The executor refuses offers that were bound more
// than 10 s ago, and everything that was offered before a lapse of the lease. These rules will be removed when those
// servers are no longer supported.
//
// # What happens when
//
//   - An offer is duplicated or late: the executor accepts an attempt that it accepted before, but does not start it
//     again. It refuses an offer that arrives too late.
//   - The process is frozen, or its machine is suspended: on waking, the executor hands back accepted attempts that did
//     not start before their limit. Running handlers continue. Belfry may have declared their attempts lost in the
//     meantime.
//   - The process dies: its running attempts end as lost within 15 s and follow the retry policy. The next process with
//     the same Instance and SpoolDir sends the results in the spool, under the boot id of the boot that ran them.
//   - NATS is unavailable, at the start or later: Run keeps trying until its context is cancelled. Running handlers
//     continue. Their results wait in the spool, and their log lines wait in a bounded buffer. If the buffer is full,
//     the executor drops the oldest lines and inserts a line with their number.
//   - A run writes output faster than the executor can send it: the executor reads the output more slowly, as long as
//     NATS accepts lines.
//   - The token is missing, wrong or belongs to another group: the executor logs an error and Run keeps trying, with a
//     delay of up to 30 s, because an operator may issue a new token.
//   - The disk or the spool is full: the instance is unfit, see below. It keeps results in memory and sends them from
//     there.
//   - The process runs out of file descriptors: the instance is unfit.
//   - A handler panics: the attempt fails with reason handler_panic and the stack. The process continues.
//   - A handler exceeds the job's timeout: the executor cancels its context. The attempt fails with reason timeout when
//     the handler returns. A handler that ignores its context keeps its slot.
//   - A run is killed: the executor cancels the handler's context. The attempt ends as cancelled, unless the handler
//     still returns nil.
//   - Run's context is cancelled: the executor takes no more attempts and hands back accepted ones that have not
//     started. Running handlers get DrainTimeout to return. Then the executor cancels their contexts, and they end as
//     drained. The executor sends the remaining results and logs. It waits up to SettleTimeout until the results are
//     settled; meanwhile its heartbeats continue, and it repeats results as usual. Then it withdraws its heartbeat,
//     refuses the offers that were already on their way, and Run returns nil. If all results are settled, the withdrawal says so,
//     and Belfry gives attempts that are still bound to this process to another instance at once. Results that are not settled by then stay in the spool.
//
// # An instance that is unfit
//
// Two troubles of a process would make every run fail or endanger its result: too few file descriptors, and a spool
// that cannot be written. The executor checks for both before a run meets them. Each second, it opens a file, and on
// Linux it compares the number of open descriptors with their limit: 16 must be free. Every 3 s, it writes as much as a
// large result to a file in the spool directory, and truncates that file at once.
//
// While there is such a trouble, the instance takes itself out of rotation: it names the trouble in its heartbeats and
// refuses offers. Running attempts continue, and heartbeats, answers and results, too, so Belfry does not declare the
// instance dead. The instance returns by itself when the trouble is over. Executor.Status tells the same.
//
// The check cannot exclude failures: descriptors or room can run out while attempts run. A network file system may
// accept the check's write and report only later that it is full.
//
// # Scripts
//
// A program may also run the scripts of jobs: see RegisterScripts. Package scripts provides a runner for the usual
// languages. Belfry sends the code over the same connection when this instance first accepts a script with a new
// digest. The executor keeps the code in the directory "scripts" of the spool. That directory is bounded in size, and
// the executor checks the code against its digest at each use. If the code does not arrive within 10 s, the executor
// hands the attempt back.
//
// # The instance name and the spool
//
// The spool of an instance is a directory "<group>.<instance>" below SpoolDir. The process locks it. A restarted
// process finds its spool only under the same instance name. Without Instance, the executor takes the first unlocked
// directory of this group and host, and its name. If there is none, it creates one with a random suffix. The name
// therefore stays the same as long as the spool directory exists, and two processes on one host get two names. In a
// container, set SpoolDir to a volume that outlives the container, and Instance to a stable name such as the name of
// the stateful set's pod.
//
// No two processes of a group may have the same name. The first heartbeat of a boot takes the name over, so that a
// restart need not wait. Each later heartbeat is stored only if the last heartbeat under the name belongs to the same
// boot, or if there is none. If two processes use one name, the later process therefore gets the runs. The earlier one
// logs an error every 10 s, gets no more offers, and does not answer requests that are meant for the later one. It
// returns to service when the later one is gone. The runs that it had when the name was taken end as lost.
package executor
