// Package scheduler decides when: it pre-reads due jobs, keeps their runs in a time ring, and hands each to Fire
// at its due instant. Any number of schedulers run side by side.
//
// # Guarantees
//
// A fire time is planned once: the store decides about it under the lock of its job, and advances the job in the
// same transaction. A planned run is in one ring at a time, by its mark rung_at. Firing it is a compare-and-set, so
// that a ring which holds a run that was edited, killed or taken over meanwhile changes nothing.
//
// # Who holds the truth
//
// Postgres. The ring holds ids and what Fire compares, nothing that would be missed.
//
// # Crash, delay, duplicate
//
// A scheduler that dies leaves planned runs behind: another one takes those that are two seconds past due, which
// is inside the misfire tolerance. A scheduler that stalls, or whose process is stopped, drains every slot since
// its last tick when it goes on, so that a stall makes runs late by the stall and never by a lap of the ring. A full
// ring makes the pre-read wait.
//
// # More than can be done
//
// What has run is settled first: while results wait for seconds, fires are slowed down, though never below 10,000 a second.
// While fires or plans are late, jobs are planned no further ahead than must be, a late one no further than a second past
// where it is; while fires are over a second late, none is planned that is due no sooner than they. What was planned far ahead,
// before there was too much, is held until the late jobs are as far. So what waits is jobs, in due order to about a second, and
// not runs; a fire time that has waited for longer than the tolerance is decided by its misfire policy, like any that came too
// late. Nothing has to be cleared away when the rush is over.
package scheduler
