// Package scheduler decides when runs start: it pre-reads due jobs, keeps their runs in a time ring, and hands each
// run to Fire at its due instant. Any number of schedulers run side by side.
//
// # Guarantees
//
// A fire time is planned once: the store decides about it under the lock of its job, and advances the job in the
// same transaction. A planned run is in one ring at a time; its column rung_at marks it as taken. Fire is a
// compare-and-set. If a run was edited, killed or taken over after it entered a ring, firing it changes nothing.
//
// # Where the truth is stored
//
// Postgres stores the truth. The ring holds only run ids and the values that Fire compares, so losing a ring loses
// no run.
//
// # Crash, delay, duplicate
//
// A scheduler that dies leaves planned runs behind. Another scheduler takes those that are two seconds past due,
// which is inside the misfire tolerance. After a stall or a stopped process, a scheduler drains every slot since its
// last tick, so that runs are late by the stall and never by a lap of the ring. While the ring is full, the pre-read
// waits.
//
// The database may step its clock. After a step forward, the ring is drained like after a stall, and the store admits only
// runs within the misfire tolerance. After a step back, the ring files its entries again, so that they fire when the
// clock reaches them. All other waits of a scheduler are durations, which a step does not change.
//
// # Overload
//
// Settling results comes before firing: while results wait for seconds, the scheduler fires more slowly, though never
// below 10,000 runs a second.
//
// While fires or plans are late, the scheduler plans jobs only as far ahead as necessary, and a late job one second
// at a time. While fires are over a second late, it plans no job that is due at the same time as they are or later.
// Runs that were planned far ahead before the overload are held until planning of the late jobs has reached them.
//
// So the backlog consists of jobs, in due order to about a second, and not of runs. If a fire time has waited for
// longer than the tolerance, its misfire policy decides about it, as about any late fire time. The end of an overload
// needs no cleanup.
package scheduler
