// Package store keeps the truth: jobs, their versions, live runs, history, in Postgres. One method is one
// transaction with a business name.
//
// # Guarantees
//
// A fire time becomes one run or one ledger entry, because PlanDue and the edits decide under the lock of the
// job's job_due row and advance it in the same transaction, and because a scheduled run's id is computed, so that
// the primary key forbids a second one.
//
// An attempt is bound to one boot of one instance before anybody offers it: Admit, AssignWaiting and RaiseBinds
// raise `bind` by compare-and-set, and everything that ends or moves an attempt (Settle, Unbind) compares too. A
// caller that acts on old knowledge changes nothing.
//
// A final run never changes: it stands in runs_history, into which nothing but Settle inserts.
//
// # Locks
//
// Everywhere in this order, and by id within each: job_due, jobs, runs_waiting, block_slots, broadcasts, runs_live,
// alert_state. Keys of events come before jobs; the uses of routes are counted in transactions of their own. Whoever decides
// fire times shares, after job_due, the lock of the pauses; who begins or ends a pause takes it alone, and no other lock
// beside it. Transactions are short; a frozen process loses its locks to idle_in_transaction_session_timeout.
//
// # Crash, delay, duplicate
//
// A crash before a commit changes nothing; one after it is found by the reconcilers' queries in reconcile.go.
// Every method may be repeated: the second time it changes nothing and says so in its result.
package store
