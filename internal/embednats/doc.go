// Package embednats runs a NATS server with JetStream inside the process, for standalone and for tests.
//
// It listens on the loopback interface, keeps JetStream in one directory that no second server may open at the
// same time, and handles no signals. Clients follow the rules of package natsauth by the same auth callout that
// an external cluster uses: the server admits one user of its own, the system side, whose key is made at each
// start and never leaves memory, and hands every other log-in to whoever answers the callout. Until somebody
// does, others are refused.
//
// # Durability
//
// What JetStream acknowledged is in the operating system's hands, so a process that dies at any moment, by
// SIGKILL too, loses nothing. It is flushed to the disk every SyncInterval (5 s); a machine that loses power
// loses at most that much, and executors send again what the dispatcher had not settled. Flushing each message
// would cost a disk write per result to protect what Postgres protects already.
package embednats
