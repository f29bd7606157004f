// Package bench measures the engine and compares it with a baseline. It implements `belfry bench`.
//
// # Processes
//
// A measurement starts its own Postgres with fsync through package embedpg. Every other part is a process of this binary
// (`belfry bench-part`): a NATS server with file storage, schedulers, dispatchers and executors. So the system reports the CPU
// time and memory of each part. A part ends when its standard input is closed, at the latest when the measuring process ends.
//
// The engine is the shipped code. Jobs with the block policy parallel are written by SQL, with the same rows that the store
// would write. Then the real pre-read, ring, Fire, SDK and settling run. The handler of the executors does nothing.
//
// # The baseline
//
// An absolute figure says more about the machine than about the engine. So within the same minute, the baseline processes the
// same load on the same Postgres and NATS. It inserts a lean row, updates it in place, offers the run by request and reply,
// publishes the result to JetStream, moves the row to a history table, and acknowledges the result. It does all this in
// batches, with several workers and without any decision. The baseline gives no guarantees, so a scheduler that gives some
// cannot be faster with the same means. The ratio of engine and baseline is the result.
//
// # The gateway
//
// The mode gateway has another reference: the same jobs with Belfry's own executors. Its other side is a gateway and stubs, which are executors that
// speak the protocol of XXL-JOB over HTTP. A gateway costs additional CPU time of the servers. The stubs are not part of that.
//
// # Clocks
//
// All processes run on one machine, so one clock gives the instants of due, start and settling. The handler itself records the
// start in microseconds, because runs record only milliseconds. Postgres reports when a run was settled: it records the commit
// time of each transaction (track_commit_timestamp).
package bench
