// Package sim runs whole clusters of Belfry in simulated time, each from a seed. Real schedulers, dispatchers and executors run in a
// testing/synctest bubble. Their database is memstore, which keeps its data in memory. Their NATS server is simnats, to which the
// real client connects. A minute of simulated time takes a few hundredths of a second, so thousands of seeds run in the time in
// which tests with real processes meet a handful of faults.
//
// # What a seed decides
//
// A seed decides the jobs, the acts of the user (edits, disables, triggers, kills) and the faults. The faults are:
//   - a process is stopped in order and started again; in some worlds this happens to all processes in turn and nothing else does,
//     and no run may be late;
//   - a process crashes at a given time, at a named point or at a message;
//   - a process freezes, or its link is cut;
//   - NATS restarts, with or without its storage;
//   - messages are late or lost;
//   - another client makes NATS refuse heartbeats;
//   - Postgres is away, a transaction fails, or its outcome is unknown;
//   - a process measures the database's clock wrong.
//
// A seed does not decide the order of goroutines that are ready at the same instant, or the numbers of crypto/rand. Therefore a
// failing seed may have to run several times: SIM_SEED=n SIM_TIMES=20.
//
// # What is checked
//
// After the end of all faults, the world waits until no work is left. Then check (in check.go) compares the calls of the handlers
// and the content of the database with the versions of the jobs. It checks promises of the product and no steps of the engine.
//
// # What is simulated
//
// A crashed process has no further effect: its link is dead, its store returns errors, the effects of its handlers do not count, and
// its spool has the content of the moment of the crash. Its goroutines receive a cancelled context and end later.
//
// The messages and store calls of a frozen process stop for a while and then continue. Its timers continue to run. Apart from the
// process's own clock, this is harder for the engine than a stopped process.
//
// The database is never lost, and transactions run one after another. Tests with Postgres cover concurrent transactions.
//
// # Planted bugs
//
// TestPlantedBugs shows that the simulation finds the bugs that it is meant to find. It plants one bug at a time and runs seeds
// until check finds a failure. Production code contains only a marker comment for each bug. The marker is on the line
// above a statement and names the seam, which is that statement:
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
// To add a bug:
//  1. Put a marker above the statement.
//  2. Add an entry to bugs in planted_test.go, with 1000 seeds.
//  3. Run SIM_PLANTED='part of its name' go test ./internal/sim -run TestPlantedBugs -v, which prints the seed that finds the bug.
//  4. Reduce the number of seeds in the entry to a few times that seed. If it takes hundreds of seeds, set rare.
package sim
