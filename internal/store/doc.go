// Package store keeps jobs, their versions, live runs and the run history in Postgres, which holds the truth. One
// method is one transaction with a business name.
//
// # Guarantees
//
// A fire time becomes one run or one ledger entry. PlanDue and the edits decide about it under the lock of the job's
// job_due row and advance that row in the same transaction. The id of a scheduled run is computed, so that the primary
// key forbids a second one.
//
// An attempt is bound to one boot of one instance before any dispatcher offers it. Admit, AssignWaiting and RaiseBinds
// raise `bind` by compare-and-set, and every method that ends or moves an attempt (Settle, Unbind) compares it too. A
// caller with outdated knowledge changes nothing.
//
// A final run never changes: it is a row of runs_history, and only Settle inserts into that table.
//
// # Locks
//
// All methods lock in this order, and by id within each table: job_due, jobs, runs_waiting, block_slots, broadcasts,
// runs_live, alert_state. Keys of events come before jobs. The uses of routes are counted in transactions of their own.
//
// A transaction that decides fire times takes the lock of the pauses in shared mode, after job_due. A transaction that
// begins or ends a pause of a group takes it exclusively, and holds no other lock. For a pause of one job, the lock of its job_due row
// is enough.
//
// A transaction that adds to the usage of a group takes the lock of the group's usage after all other locks.
//
// Transactions are short. A frozen process loses its locks to idle_in_transaction_session_timeout.
//
// # Disturbances
//
// All decisions use the database's clock. Each process estimates it without a query, and reads it every two seconds.
// Between two readings, it compares the time that passed on the database's clock with the time on its own monotonic
// clock, and on Linux with the boot-time clock, which continues while the machine sleeps. The error of the two readings
// is at most half their round trips, and clocks are slewed by at most 500 ppm each. A larger difference of more than a
// second is a step: someone has set the clock of the Postgres host, or a failover led to a host with another clock. The
// time during which no question was answered is an absence of Postgres if it exceeds the misfire tolerance. So is the time during
// which planning failed although questions were answered, because of a lock or because Postgres was read-only. The planning
// queries return the database's clock too. If it contradicts the estimate, planning reads the clock before it decides,
// because planning may run before the periodic reading.
//
// Schedulers, dispatchers and consoles report each step, and schedulers each absence. The table disturbances has it
// once. Two observations are the same step if they agree about its size and overlap on the clock before the step: the
// step happened between two readings of each process. A process that notices two steps at once records
// their sum.
//
// A step forward is like an outage of the schedulers: the fire times in between are late, and the misfire policy decides
// about those beyond the tolerance. Ring entries that are late by more than the tolerance are not admitted, and the
// planner decides about them as stranded. Until a process has noticed the step, it fires by its old estimate, so that
// a run may be late once more by a second or two. A step back repeats no fire time: job_due has advanced, and the primary
// key forbids a second run. The ring files its entries again, and they wait until the clock reaches them. For up to
// two seconds, runs that were planned before may start ahead of the new clock. Executors may also refuse offers as
// stale, and dispatchers offer these runs again.
//
// # Restores
//
// A database that was restored to an earlier state does not know what ran since. Two instants bound this uncertain time: the last
// sign of life of a scheduler in the restored state, and the stop of the last process that worked on the lost state. All fire times
// that were due by the second instant and that the restored state has not fired are uncertain, including those that a pause held up,
// because the pause may have ended since. If planning decided about them, fire_all and fire_once would run them a second time.
//
// So the command `belfry restored` calls Restored, after the restore and before any process plans. Restored records the uncertain time
// as a disturbance, and decides about each uncertain fire time under the planning lock, as planning does: the missed ledger gets it,
// with the code restored. Planned runs of these fire times are deleted. Attempts that were bound and not known to be accepted become
// running, so that a dispatcher asks their instance and never offers them again. Other unfinished runs stay, because nothing tells
// whether they have run; the fire check names those that start after the restore. Restored works in batches and can be repeated.
//
// Nothing in Postgres shows reliably that it was restored, which is why an operator has to say so: a dump has a new system identifier
// or database oid, but so has a planned move; a recovery to a point in time has a new timeline, but so has each failover; a restored
// snapshot of a disk has neither. An instant that is kept in NATS is gone if NATS loses its storage.
//
// # Crash, delay, duplicate
//
// A crash before a commit changes nothing. The effects of a crash after a commit are found by the reconcilers' queries
// in reconcile.go. Every method may be repeated: the second call changes nothing and says so in its result.
package store
