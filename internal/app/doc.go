// Package app builds the roles of the binary from their components. It is the only package that imports all roles. It creates the
// components, passes each its dependencies, starts them in order, and stops upstream components first, so that components that
// hand out work stop before those that do the work.
//
// # Readiness
//
// A role is ready while it can do its work. An open connection does not show this: a standby of Postgres answers queries, a NATS
// server without a quorum or with a full disk accepts connections and requests, and the meta leader of JetStream answers for streams
// that cannot store a message. So a probe for Postgres and one for JetStream write a little, as the work of the role does, every two
// seconds in the background, each with a timeout. /readyz and the metrics read the kept result and never wait. If a probe hangs, its
// timeout ends it, so the result is at most four seconds old. A failure of Postgres counts at once, because a transaction of the role
// would fail, too. JetStream counts as available for five seconds after the last success, because the loss of one server of three
// causes an election and no outage. If no server answers for the stream of the probe, the probe wakes the component that creates the
// streams.
//
// # Log
//
// Loops retry several times a second, so that they recover quickly, and each logs each failure. A handler between the loops and
// the log limits repetitions: see repeats. Libraries log through it as well.
package app
