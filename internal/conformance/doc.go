// Package conformance tests whether an executor keeps the wire contract of docs/wire.md, whatever language it is written in.
// `belfry conformance` prints its report; docs/conformance.md is its page for authors of executors.
//
// # What is guaranteed
//
// A duty is reported as passed if the named case observed that the executor keeps it. A duty is reported as failed if a message
// or a handler's start broke it, which the report names. Most duties are judged by evidence and not by time: the lines that
// handlers write to files when they are called, the messages that the executor publishes, and its answers. Deadlines only end a
// wait, and they are generous.
//
// # How it works
//
// A tester starts a NATS server with the real streams, bucket and permissions; executors log in by the auth callout, so an
// executor that needs further subjects fails. The tester acts as the dispatcher, without a database: it chooses the heartbeat
// that an offer relies on, repeats and withholds messages, and stops the processes.
//
// Duties are grouped in plans. The duties of a plan are tested one after the other, mostly on one process; plans run side by
// side. Each process has its own group, so that the tester can attribute its messages whatever instance name it chooses. A
// record keeps the messages of a group. Any message of any case can also break a duty, such as a result with an unknown reason;
// the record notes that.
//
// A case is a function. It returns what it observed, or panics with a judgement. Only judge recovers from that panic.
//
// # The limit of a heartbeat
//
// The tester receives heartbeat k after the executor has begun to send it. So 10 s after the receipt, by the tester's monotonic
// clock, the limit of k has certainly passed, and no attempt that relies on k may start. Where an attempt must start, cases use
// heartbeats that are at most 6 s old.
//
// # A noisy machine
//
// If the tester sends a message too late for a case to mean anything, or if it stood still for over a second during a case that
// is judged by instants, it repeats the case, at most twice. If the tester was disturbed each time, the duty is unclear, and
// the run fails.
package conformance
