// Package conformance tests whether an executor keeps the wire contract of docs/wire.md, whatever language it is
// written in. `belfry conformance` prints its report; docs/conformance.md is its page for authors of executors.
//
// # What is guaranteed
//
// A duty that is reported as passed was seen to be kept in the named case. A duty that is reported as failed was seen to be
// broken; the report says by what. Most duties are judged by evidence and not by time: by the lines that handlers
// write to files when they are called, by what the executor publishes, and by its answers. Waiting has generous
// deadlines only.
//
// # How it works
//
// A tester starts a NATS server with the real streams, bucket and permissions; executors log in by the auth callout, so
// one that needs more than its subjects fails. It plays the dispatcher itself, without a database: it
// chooses the heartbeat that an offer relies on, repeats and withholds messages, and stops the processes.
//
// Duties are grouped in plans. The duties of a plan are tested one after the other, mostly on one process; plans run side
// by side. Each process has its own group, so that the tester can attribute its messages whatever instance name it chooses.
// A record keeps the messages of a group. Any message of any case can also break a duty, such as a result with an
// unknown reason; the record notes that.
//
// A case is a function. It ends by returning what it saw, or by a judgement, which it throws by panic as tests end
// by runtime.Goexit; only judge catches it.
//
// # The limit of a heartbeat
//
// The tester receives heartbeat k after the executor has begun to send it. So 10 s after the receipt, by the tester's
// monotonic clock, the limit of k has certainly passed, and no attempt that relies on k may start. Where an attempt must
// start, cases use heartbeats that are at most 6 s old.
//
// # A noisy machine
//
// If the tester sends a message too late for a case to mean anything, or if it stood still for over a second during a
// case that is judged by instants, it repeats the case, at most twice. If the tester was disturbed each time, the duty is
// unclear, and the run fails.
package conformance
