// Package event keeps event triggers and accepts events.
//
// # An event is accepted once
//
// Accept writes, in one transaction, the event's key, the runs that the event causes, and the event's record with the result of
// each trigger. If the same event is sent or delivered again, its key is taken, and Accept returns the result of the first.
// This also holds for two concurrent calls, because the second waits for the first's transaction. If the process dies, either
// everything has been written or nothing.
//
// Filters and templates are evaluated before the transaction, because it must not wait for them. The transaction then checks
// that the triggers are unchanged. If they changed, Accept starts over, so that an edit takes effect as soon as its caller has
// an answer.
//
// # Retention
//
// Keys and records are kept for the time given to DropDays. For that time a repeat is recognized. The records are partitioned
// by day, and days are dropped whole.
package event
