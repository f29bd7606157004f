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
// begins or ends a pause takes it exclusively, and holds no other lock.
//
// A transaction that adds to the usage of a group takes the lock of the group's usage after all other locks.
//
// Transactions are short. A frozen process loses its locks to idle_in_transaction_session_timeout.
//
// # Crash, delay, duplicate
//
// A crash before a commit changes nothing. The effects of a crash after a commit are found by the reconcilers' queries
// in reconcile.go. Every method may be repeated: the second call changes nothing and says so in its result.
package store
