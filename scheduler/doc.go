// Package scheduler decides when runs start: it pre-reads due jobs, keeps their runs in a time ring, and hands each
// run to Fire at its due instant. Any number of schedulers may run concurrently.
//
// A pre-read has five statements. After one that found nothing, the next ones begin with a single statement (Quiet) that says
// whether the others may find anything, so that a scheduler at rest costs little.
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
// A scheduler that is killed leaves planned runs behind. Another scheduler takes those that are two seconds past due,
// which is inside the misfire tolerance. After a stall or a stopped process, a scheduler drains every slot since its
// last tick, so that runs are late by the stall and never by a lap of the ring. While the ring is full, the pre-read
// waits.
//
// The database may step its clock. After a step forward, the ring is drained like after a stall, and the store admits only
// runs within the misfire tolerance. After a step back, the ring files its entries again, so that they fire when the
// clock reaches them. All other waits of a scheduler are durations, which a step does not change.
//
// # Orderly stop
//
// When its context ends, a scheduler does this:
//
//  1. It begins no more planning transactions, and completes the one in progress, because a committed transaction whose
//     answer is lost leaves runs that are in no ring.
//  2. It takes the entries that are due in more than keepFor out of its ring, and hands these runs back, the next ones first.
//     HandBack clears rung_at and notifies the other schedulers in the same transaction. They claim the runs at once.
//  3. It fires the entries that are left, until there are none, for keepFor and keepOver at most.
//  4. It waits for the fires in progress, and hands back what is left, for example during an overload.
//
// No run is fired twice. An entry leaves the ring before its run is handed back, and an entry that has left the ring to be
// fired is not handed back, unless its Fire has returned it. Besides, it does no harm if two rings hold a run, because Fire is
// a compare-and-set: the first fire changes the run, and the second one changes nothing. Therefore HandBack may be repeated
// after a lost answer, although another scheduler may have claimed the run meanwhile, and it does not have to compare whose
// mark rung_at is. It compares the same values as Fire, so that an entry for an earlier state of a run changes nothing.
//
// No run is lost. HandBack changes only rung_at. A run without the mark is claimed by every pre-read, once a second and at
// every notification; if it is later than the tolerance, its misfire policy decides about it. If the process is killed
// before HandBack has committed, or if Postgres is unavailable, the runs keep their mark and are taken over like those of a
// dead scheduler.
//
// No run is late if another scheduler is at work: it has keepFor between the notification and the first due instant.
//
// # Overload
//
// Settling results has priority over firing. While results wait for seconds, the scheduler fires more slowly, but its limit
// is never below 10,000 runs a second.
//
// While fires or plans are late, the scheduler plans jobs only as far ahead as necessary, and a late job one second
// at a time. While fires are over a second late, it plans no job that is due at the same time as they are or later.
// Runs that were planned far ahead before the overload are held until planning of the late jobs has reached them.
//
// During an overload, the backlog therefore consists of jobs and not of runs. Jobs are processed in due order, accurate
// to about a second. If a fire time has waited for longer than the tolerance, the job's misfire policy is applied, as to
// any late fire time. No cleanup is necessary after an overload.
package scheduler
