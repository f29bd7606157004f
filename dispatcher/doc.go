// Package dispatcher routes runs to executor instances and processes what the instances report.
//
// Every process that fires or kills runs has a Firing. Role is the work of the dispatcher role: it settles results, assigns
// waiting runs, and reconciles. This package assembles both from smaller packages. In this list, each package may import those
// above it:
//
//	route, roster      choose an instance; the view of the live instances, and the limits of their heartbeats
//	peer               requests to instances; whether this process can hear them
//	divide             finds the items of a batch that Postgres refuses
//	glance             what loops may find
//	waiting, intake    hints about waiting runs; fair queues and batches from a stream, dead letters
//	announce           state changes for consoles and other subscribers
//	settle             starts and ends of attempts, recorded in Postgres
//	offer, kill        offers and kill requests to instances
//	fire               routes, binds and offers runs; only this package fires
//	assign, results    waiting runs; results from the stream
//	verdict            questions to instances, and the death verdict
//	reconcile          repairs that need only the database
//
// The end of a run can release held runs. A package that ends runs returns the released runs to its caller, which passes them
// to package fire.
//
// The packages events, firecheck, followup, logs and runstats are independent parts of the role. Package app starts them.
//
// # Guarantees
//
// An attempt is bound in Postgres to one boot of one instance before it is offered to that boot. The offer carries the number
// of its round, `bind`. Every answer is applied by compare-and-set on that number, so that a process with stale data
// changes nothing. Therefore an attempt starts at most once, without an acknowledgement protocol.
//
// After an offer without an answer, it is unknown whether the instance has the attempt. From then on, the attempt can be routed
// again only after that boot refuses it, or after a verdict that the boot is dead. If NATS answers a first offer with "no
// responders", the offer certainly reached no instance.
//
// A dispatcher acknowledges a result to JetStream after the transaction has committed. The executor keeps the result until it is
// notified that the result is settled. There is one exception: if a group exceeds its share of all bounds (package intake), its
// results are acknowledged but not settled, and the executor sends them again. If the executor dies before that, the verdict
// cannot include the result, and the attempt is lost. This can happen only to runs of that group.
//
// # The fence
//
// An attempt that was declared lost never starts, even if its executor was frozen after accepting it, its machine was suspended,
// its offer waited in a socket buffer, or a clock was set. The rules:
//
//   - An executor numbers its heartbeats within a boot, and notes T[k] before it sends number k.
//   - An offer names a beat n: the number of the boot's newest heartbeat that the offering process had received *before* it began
//     the transaction that bound the attempt or raised its bind. The heartbeat was at most 7 s old then, by that process's
//     monotonic clock, so that the offer has some seconds to arrive. The process that binds an attempt also offers it, and keeps
//     the beat in memory between the two steps.
//   - An executor starts an attempt only before T[n] + 10 s. If its clocks disagree, the one with the most elapsed time decides.
//   - A verdict lists the attempts that are bound to a boot, then reads the instance's key from the leader of the bucket's
//     stream, at a moment R. It requires that the key is gone or belongs to another boot, that this process has received every
//     message that the stream held at R, and that none of them is a heartbeat of the boot from the 10.5 s before R.
//
// Why this holds. Let A be an attempt in the list, and n the beat of its newest offer round. Heartbeat n was received before A's
// binding committed, so it was stored before the list was read, and so before R. This process has received it, or a later one
// of the same boot that replaced it, 10.5 s before R at the latest (if the watch skips a message, roster.received restarts the 10.5
// s). A heartbeat is received after it was sent, so T[n] < R - 10.5 s. An attempt can start only before
// T[n] + 10 s, which is before R - 0.5 s. Therefore no attempt of the list starts after R. If A's bind was raised after the list
// was read, the verdict changes nothing, because it compares the bind.
//
// Only elapsed times are compared, each measured on one machine; the half second covers clocks that run at different rates. A
// step of any wall clock, NATS's included, is harmless: it can only make an executor refuse. The beat must not be captured
// when the offer is sent. Otherwise, after a freeze between binding and sending, a dispatcher could offer a lost attempt that
// relies on a heartbeat of an executor that was frozen too and has continued.
//
// If the executor does not report the end of an attempt, the dispatcher ends the attempt after its timeout and a grace period.
// The dispatcher kills the attempt at the executor first, or waits until the last binding is over 11 s old.
//
// Missing heartbeats prove nothing while this process may have missed some: the watch has skipped messages, or it began not long ago. They
// prove nothing either while other values make the bucket refuse heartbeats. A client can cause both all the time, also from another
// group (roster.Guard removes such values). Then verdict.judgeSuspects has another rule: an attempt is lost if the boot has given no sign of
// life for 10.5 s, no answer to a ping and no heartbeat, not even a refused one; and if the judge has known the attempt, in its present bind,
// for 10.5 s. The second condition suffices for the fence: n was captured before the binding committed, so before the judge knew the attempt,
// and an attempt can start only before T[n] + 10 s. It does not matter which heartbeats anyone received. This rule does not replace the
// first one, because it takes longer for attempts that are bound after the death.
//
// A verdict also takes 10 s if another process has taken the instance name of the boot. If that process answers an offer, the
// answer does not free the attempt, because the bound boot may be alive and may have received the offer too.
//
// Some boots have a record in Postgres (engine.BoundBoot.Kept): executors that are reached through a gateway, which outlive its processes. Neither rule
// applies to them. Their gateway reports lost attempts as results, and deletes the record when it has reported all of them. The gateway sends an
// attempt only in a transaction that locks the record, so no attempt starts after the record was deleted.
//
// # The goodbye
//
// An executor that stops in order deletes its key as its last message. If all its results are settled, the message names its boot:
// wire.Goodbye. Attempts that are still bound to that boot and are not recorded as running are then routed again at once, as the same
// attempt. This is right for the following reasons:
//
//   - The executor has stopped accepting and starting attempts before it sends the message. So an attempt that was offered before and not
//     accepted, or whose offer is still on its way, never starts there.
//   - Every attempt that the boot accepted has ended there or was handed back, its result was settled in a transaction, and the executor
//     was notified after the commit. A dispatcher reads the bound attempts after it has received the goodbye, so it sees these
//     commits. An attempt that is still bound, with its current bind, was therefore not accepted in this bind.
//   - Unbind compares the attempt and the bind. If the refusal of the offer arrives at the same time, only one of them has an effect. A
//     process that offers the attempt later, in the old bind, reaches no process or is refused.
//   - The statement about the boot stays true forever. So it does not matter how late a dispatcher receives it, or how often.
//
// Only a failover of Postgres that lost commits can break the second reason: the database may have lost the end of an attempt that was
// settled. Promise 2 needs synchronous replication in that case. The dispatcher excludes attempts that are recorded as running, because they
// certainly started; a verdict decides about them. A goodbye without a boot, for example of an older executor, frees no attempts.
//
// # Where the truth is stored
//
// Postgres stores the truth. The roster is a view, and the set of waiting.Kinds is a hint that saves work. The loss of either one
// delays runs by a second or two.
//
// # Crash, delay, duplicate
//
//	crash after bind, before offer       the judge asks the instance, which does not know the attempt, and offers it again
//	crash after offer, before answer     the judge asks the instance, which has the attempt
//	an instance stops in order           attempts that it has never received are routed again
//	an instance dies                     its attempts are lost once its lease has expired and its group's last results are settled
//	a result arrives twice               the second one finds that the attempt has ended, and changes nothing
//	NATS is unavailable                  runs wait as queued and unbound; no run is declared lost
//	this process was frozen              the same until NATS answers; runs that it bound and did not offer are unbound
//	Postgres is unavailable              results stay in the stream and in the executors' spools
//
// # Values that Postgres refuses
//
// One value can make a whole batch fail, for example a text with a NUL. No batch is then repeated as a whole, because it can hold the work
// of other groups. Errors without such a cause, for example a lost connection or a deadlock, are not treated so.
//
//	fire, bind, start, settle            package divide halves the batch. The refused run stays as it is, is counted in
//	                                     belfry_refused_runs_total, and logged. A run that cannot be bound ends at its start deadline.
//	results                              halved. The refused result is a dead letter, and its run ends without the result's texts.
//	events                               halved. The refused message is a dead letter.
//	logs                                 each message is stored alone. The refused one is a dead letter.
//	unbind, new rounds of offers         cannot be refused, because the values are ids, numbers and texts of this process.
//	broadcasts                           have a transaction each.
//	failover, busyover                   a batch has the runs of one job, so it stops no other job.
//
// # Reconcilers
//
// Any message between processes can be lost. The reconcilers find the affected runs in Postgres and repair them. Each counts in
// belfry_reconciled_total under its kind, unless stated otherwise, and has a test that loses only its message. If no test is
// named, it is the kind's part of TestReconcilers.
//
//	finds                                  because                             repair                                      kind
//	a planned run, due 2 s ago, not held   its scheduler died                  another scheduler fires it; beyond the      belfry_stranded_total,
//	                                                                           tolerance the misfire policy decides        belfry_misfired_total (1)
//	a run held by a run that is final      a crash, manual SQL                 releases the next run of the job            held_by_nobody
//	a queued, unbound run                  it waits for room                   assigns it; past its start deadline it      start_deadline
//	                                                                           ends no_executor; the deadline pauses
//	                                                                           while NATS is unavailable
//	the same, for one instance only        that instance has no lease          ends it no_executor                         shard_of_gone_instance (2)
//	the same, not among the waiting runs   a bug, manual SQL                   makes it wait                               stray
//	a bound run, not known to be accepted  its dispatcher died, the offer or   asks the instance: it runs, it has ended,   unanswered_offer (3)
//	                                       the answer was lost                 or it is offered again
//	a run bound to a boot without a lease  the instance died                   after the death verdict (judgeDeaths):      dead_instance (4)
//	                                                                           takes the result from the spool of a later
//	                                                                           boot, or declares the attempt lost
//	a bound run, not known to be accepted, its dispatcher died before    routes it again                             stopped_instance (7)
//	on a boot that said goodbye            the offer, or NATS lost it
//	a running run on a live boot           its result was lost, with the       asks the instance: takes its result, or     unknown_to_instance
//	                                       instance's memory of it             declares the attempt lost
//	a run past its timeout and grace       the handler hangs                   takes its result, or ends it timeout and    timeout
//	                                                                           kills it
//	a kill without confirmation            the message was lost, the handler   sends it again                              kill
//	                                       ignores it
//	an attempt that its instance has run   the database failed over without    settles it by the instance's result, or by  ended_before (6)
//	before                                 its last commits, or was restored   the outcome alone
//	a retrying run past its due instant    no worker planned it again          plans it again                              retry_not_replanned
//	a fixed_delay job without a next fire  a crash                             plans the next fire                         fixed_delay_stopped
//	time and without a live run
//	a fire time without a run or an entry  a bug, manual SQL                   ledger, metric: see package firecheck       belfry_fire_check_unexplained_total (5)
//	in the missed ledger
//
// (1) TestClaimNearTakesOver and TestStrandedAndUnplannedAreJudgedTogether of internal/store,
// TestPromiseSchedulerKilledMidSecond of internal/e2e. (2) Also TestPinnedShardSurvivesABlink. (3) Also
// TestDispatcherKilledBetweenBindAndOffer and …BetweenOfferAndAnswer of internal/e2e. (4) Also TestPromiseExecutorGone and
// TestScenarioExecutorFrozenWithOffersInItsSocket of internal/e2e. (5) TestAuditFindsWhatIsTakenAway of internal/store.
// (6) TestEndedBefore. (7) TestGoodbyeRoutesAgain, TestScenarioStopOfABoundInstance of internal/e2e.
//
// # Shutdown
//
// When its context ends, a dispatcher takes no more work. It waits for the answers to its offers, and settles the results that it
// has fetched. Assignments in progress are completed, because runs that are bound and not offered would wait for a reconciler.
//
// A run may begin to wait in a process without an assigner, for example because a draining instance refused the offer of a scheduler.
// Such a process publishes a signal without content, at most ten times a second, and the assigners of all dispatchers look at
// the waiting runs at once. A dispatcher that stops does the same once its assigner has ended. If the signal is lost, the
// assigners find the run within a second.
//
// A process begins to fire when its roster knows the live instances (Firing.Ready), because runs without a known instance
// would wait. If NATS does not answer, it begins after two seconds.
package dispatcher
