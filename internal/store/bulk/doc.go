// Package bulk keeps bulk actions and performs them: an action kills or retries all runs that match a filter.
//
// # Which runs
//
// An action is a row of table bulk_actions. Runs that were created after the action do not match. A walk goes through the
// matching runs from new to old, in batches. The cursor of the row is the last processed run.
//
// # Exactly once
//
// A batch is one transaction: it locks the row, compares the cursor with the one from which the batch was read, changes the
// runs, and moves the cursor and the counts. If a process dies, the transaction has no effect, and the next batch begins at
// the same cursor. If two processes work on the same action, the second one finds another cursor and changes nothing. So
// each matching run is retried once.
//
// A kill is recorded in the transaction, and sent to the instances after the commit. If a process dies in between, the
// reconcilers of the dispatchers send it.
//
// # Rights
//
// An action has the rights that its creator has when a batch begins. If the creator is gone or disabled, is no operator any more, or
// has lost one of the groups that the action is about, the action fails with a reason. Runs that were changed stay so.
//
// # End
//
// An action ends as done, stopped or failed, and then does not change. It writes its counts to the audit log in the transaction
// of its end. Seven days later, package retention deletes the action.
//
// River calls Step through package followup. Creating an action and enqueueing its River job are one transaction.
package bulk
