// Package bench measures Belfry: `belfry bench`.
//
// # What runs
//
// A measurement starts a Postgres of its own with fsync, by package embedpg, and every other part as a process of
// this same binary (`belfry bench-part`): a NATS server with file storage, schedulers, dispatchers, executors. So
// the system says for each part what it used. Parts end when their standard input does, at the latest with the
// measurement itself.
//
// The engine is the one that ships: jobs of block policy parallel are written by SQL as the store would write them,
// and from there on pre-read, ring, Fire, SDK and settling do their work. The executors' handler does nothing.
//
// # The baseline
//
// A figure by itself tells of the machine. So each measurement is accompanied by the same load on a bare pipeline, on
// the same Postgres and NATS, within the same minute: insert a lean row, update it in place, offer it by request and
// reply, publish the result to JetStream in batches, move the row to a history table, acknowledge. All in batches, by
// several workers, with no decision anywhere. It promises nothing; no scheduler that keeps promises can be faster by
// these means. What counts is the ratio.
//
// # Which clock
//
// All processes are on one machine, so due, start and settling are read from one clock. Starts are noted by the
// handler, in microseconds, as runs record milliseconds only. When a run was settled is told by Postgres itself, which
// keeps the commit times of transactions here (track_commit_timestamp).
package bench
