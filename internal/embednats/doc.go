// Package embednats runs a NATS server with JetStream in the process, for standalone and for tests.
//
// The server listens on the loopback interface, keeps JetStream in one directory that no second server may open at the same
// time, and handles no signals. The auth callout of package natsauth authenticates clients, as in an external cluster. The
// server itself admits two users, whose keys are created at each start and never leave memory: the user of the system side, and
// a user of the system account, who can list and end connections. The server passes every other log-in to the auth callout.
// Until a Responder answers the callout, these log-ins are refused.
//
// # Durability
//
// The operating system has received everything that JetStream acknowledged, so a process that dies at any moment, also by
// SIGKILL, loses nothing. The data is flushed to the disk every SyncInterval (5 s). A machine that loses power loses at most
// that much, and executors send results again that the dispatcher had not settled. Flushing each message would cost a disk
// write per result, to protect data that Postgres already protects.
package embednats
