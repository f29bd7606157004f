// Package sim runs whole clusters of Belfry in simulated time, from a seed: real schedulers, dispatchers and executors
// in a testing/synctest bubble, over a database in memory (memstore) and a NATS server in memory (simnats) to which the
// real client speaks. A minute of a cluster's life takes some hundredths of a second, so that thousands of seeds fit
// where real processes show a handful of faults.
//
// # What a seed decides
//
// The jobs and what is done to them (edits, disables, triggers, kills), and the faults: processes that crash at a
// moment, at a named point or at a message, processes that freeze, links that are cut, NATS restarted or wiped, messages
// late or lost, Postgres away, transactions that fail or whose outcome is not learnt, clocks measured wrong. It does not
// decide in which order goroutines run that are ready at the same instant, nor what crypto/rand draws, so that a failing
// seed may have to be run several times: SIM_SEED=n SIM_TIMES=20.
//
// # What is checked
//
// After the faults are healed and the cluster is quiet, Check compares what the handlers saw and what the database holds
// with what the job versions say must be: package-level promises of the product, not steps of the engine. See check.go.
//
// # What is simulated, and what is not
//
// A process that crashes has no further effect: its link is dead, its store refuses, its handlers' effects do not count,
// and its spool is what was on disk at that moment. Its goroutines are only told to end. A frozen process is one whose
// messages and store calls stop for a while and then all go on; its timers run, which makes it a harder adversary than a
// stopped one in all but its own clock. The database is never lost, and transactions are alone in it: their
// interleavings are tested with Postgres.
//
// # Planted bugs
//
// TestPlantedBugs shows that the simulation finds the bugs that it is meant to find. It plants one bug at a time and runs seeds
// until Check reports a fault. Production code contains only a marker comment for each bug, on a line of its own above a
// statement. It names the seam, which is the statement below it:
//
//	//sim:seam slot-freed
//	l.taken--
//
// A bug is an entry in planted_test.go. It names its seam and the replacement of the statement, or of the expression that the
// statement decides by. In the replacement, $ stands for the original code, so that the statement can change without a change of
// the bug. The test parses the file, replaces the statement in a copy and builds the simulation with the copy as an overlay of the
// go command. The files themselves do not change, and a build without the overlay contains no trace of the bugs.
//
// TestSeams fails if a seam is missing or occurs twice, if no bug uses a seam, or if no statement begins on the line below a
// marker. TestSeamsBuild compiles all bugs together. If a bug no longer breaks anything, its seeds find nothing and TestPlantedBugs
// fails.
//
// To add a bug: put a marker above the statement, add an entry with a change, the reason and 1000 seeds, run
// SIM_PLANTED='part of its name' go test ./internal/sim -run TestPlantedBugs -v, and reduce seeds to a small multiple of what it
// needed. If it needs hundreds of seeds, set rare.
package sim
