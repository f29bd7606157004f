// Package dispatcher decides where a run goes and takes in what came of it: Fire, offers, results, retries,
// children, logs, and the reconcilers that find what got lost on the way.
//
// # Guarantees
//
// An attempt is bound in Postgres to one boot of one instance before it is offered to it. The offer carries the
// counter of its round, `bind`, and every answer acts only by compare-and-set on it. So an attempt is started at
// most once, without any acknowledgement protocol: whoever acts on old knowledge changes nothing.
//
// After an offer without an answer nobody knows whether the instance has the attempt. From then on only that
// boot's own refusal, or its death, frees it. "No responders" to a first offer says that it surely reached nobody.
//
// A result is acknowledged to JetStream after its transaction has committed, and the executor keeps it until it is
// told so.
//
// # The fence
//
// An attempt that was declared lost never starts, also if its executor was frozen after accepting it, its machine was suspended,
// its offer lay in a socket, or a clock was set. The rules:
//
//   - An executor numbers its heartbeats within a boot, and notes T[k] before it sends number k.
//   - An offer names a beat n: the newest heartbeat of the boot that the process which offers had received *before* it began the
//     transaction that bound the attempt or raised its bind. The heartbeat was at most 7 s old then, by that process's monotonic
//     clock, so that the offer has some seconds to arrive. The process that binds also offers; the beat goes along in memory.
//   - An executor starts an attempt only before T[n] + 10 s. Of its own clocks, the one that shows the most elapsed time counts.
//   - A verdict lists the attempts that are bound to a boot, then reads the instance's key from the leader of the bucket's
//     stream, at a moment R. It needs that the key is gone or another boot's, and that this process has received every message
//     that the stream held at R, and among them no heartbeat of the boot that came in the 10.5 s before R.
//
// Why this holds. Let A be an attempt in the list, and n the beat of its newest offer round. Heartbeat n was received before A's
// binding committed, so it was stored before the list was read, and so before R. This process has received it, or a later one
// of the same boot that replaced it, 10.5 s before R at the latest (a message that was replaced by another boot's is
// accounted for: see roster.received). A heartbeat is received after it was sent, so T[n] < R - 10.5 s. A start needs a time
// before T[n] + 10 s < R - 0.5 s. So after R no attempt of the list starts. If A's bind was raised after the list was
// read, the verdict changes nothing, because it compares the bind.
//
// Only elapsed times are compared, each measured on one machine; the half second covers clocks that run at different rates. A
// step of any wall clock, NATS's included, changes nothing: it can only make an executor refuse. If the beat were captured
// when the offer is sent, a dispatcher that was frozen between binding and sending could offer a lost attempt on a
// heartbeat of the woken executor.
//
// A dispatcher also ends a bound attempt, without a report of its executor, some time after its timeout. The dispatcher kills the
// attempt at the executor first, or waits until the last binding is over 11 s old.
//
// A verdict on a boot whose name another process has taken takes 10 s as well. An offer that such a process answers frees
// nothing: the boot that the attempt is bound to may live and have the offer, too.
//
// # Who holds the truth
//
// Postgres. The roster is a view, the maps of accepted attempts and of waiting kinds are hints that save work;
// losing them costs a second or two.
//
// # Crash, delay, duplicate
//
//	crash after bind, before offer       the run is silent: its instance is asked, does not know it, is offered it
//	crash after offer, before answer     the run is silent: its instance is asked, and has it
//	an instance dies                     its lease ends, it answers no ping, its last results are settled: lost
//	a result comes twice                 the second one finds the attempt ended and changes nothing
//	NATS is away                         runs wait as queued, unbound; nobody is named lost
//	this process was frozen              the same, until NATS has answered it; what it had bound and not offered is unbound
//	Postgres is away                     results stay in the stream and in the executors' spools
//
// # Reconcilers
//
// Every arrow between processes may lose what it carries. These find that in Postgres and go on; each counts in
// belfry_reconciled_total under its kind, unless said otherwise, and has a test that breaks its arrow alone. Where none
// is named, that is the kind's part of TestReconcilers.
//
//	finds                                   because                            does                                       kind
//	planned, due 2 s ago, not held          its scheduler died                 another scheduler fires it; past the       belfry_stranded_total,
//	                                                                           tolerance the misfire policy decides       belfry_misfired_total (1)
//	held by a run that is final             a crash, somebody's SQL            releases the next of its job               held_by_nobody
//	queued, unbound                         it waits for room                  assigns it; past its start deadline it     start_deadline
//	                                                                           ends no_executor, which NATS's absence
//	                                                                           puts off
//	the same, of one instance alone         that instance has no lease         ends it no_executor                        shard_of_gone_instance (2)
//	the same, not among those that wait     a bug, somebody's SQL              makes it wait                              stray
//	bound, not known to be accepted         its dispatcher died, the offer     asks the instance: it runs, it has ended,  unanswered_offer (3)
//	                                        or the answer was lost             or it is offered again
//	bound to a boot without a lease         the instance died                  after the death verdict (see judgeDeaths)  dead_instance (4)
//	                                                                           takes what a later boot's spool says,
//	                                                                           else names it lost
//	running on a boot that lives            its result was lost, and all that  asks the instance: takes its result, or    unknown_to_instance
//	                                        the instance knew of it            names it lost
//	past its timeout and the grace          the handler hangs                  takes its result, or ends it timeout and   timeout
//	                                                                           kills it
//	a kill not confirmed                    the message was lost, the handler  says it again                              kill
//	                                        ignores it
//	an attempt that its instance has run    the database failed over without   settles it by the result that the instance ended_before (6)
//	before                                  its last commits, or was restored  has, or by the outcome alone
//	retrying past due                       no worker re-planned it            re-plans it                                retry_not_replanned
//	a fixed_delay job without a next fire,  a crash                            plans the next one                         fixed_delay_stopped
//	and nothing of it live
//	a fire time of a job's versions         a bug, somebody's SQL              ledger, metric; package audit              belfry_audit_unexplained_total (5)
//	without a run or a ledger entry
//
// (1) TestClaimNearTakesOver and TestStrandedAndUnplannedAreJudgedTogether of internal/store,
// TestPromiseSchedulerKilledMidSecond of internal/e2e. (2) Also TestPinnedShardSurvivesABlink. (3) Also
// TestDispatcherKilledBetweenBindAndOffer and …BetweenOfferAndAnswer of internal/e2e. (4) Also TestPromiseExecutorGone and
// TestScenarioExecutorFrozenWithOffersInItsSocket of internal/e2e. (5) TestAuditFindsWhatIsTakenAway of internal/store.
// (6) TestEndedBefore.
//
// # Ordered end
//
// When its context ends, a dispatcher takes no more, waits for the answers to its offers, and settles what it has
// fetched.
package dispatcher
