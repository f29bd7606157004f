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
package scheduler
