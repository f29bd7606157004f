// Package event keeps event triggers, and accepts events.
//
// # An event is accepted once
//
// Accept writes, in one transaction, what the event is known by, the runs that it causes, and its record with what each
// trigger made of it. Whoever sends the same event again, or delivers it again, finds its key taken, and is told what
// became of the first: also where two do it at once, as the second waits for the first's transaction. Should the
// process die, nothing of it has happened, or all.
//
// Filters and templates are evaluated before the transaction, as it must not wait for them. It then checks that the
// triggers are still those, and is begun anew where they are not, so that an edit that was answered counts.
//
// # What is kept
//
// Keys and records are kept for as long as DropDays is told; for so long a repeat is known as one. The records are
// tables by day, which are dropped whole.
package event
