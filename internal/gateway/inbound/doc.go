// Package inbound serves the HTTP requests that executors of XXL-JOB make to their admin: registrations and callbacks.
//
// # Answers
//
// Every answer to an executor has the HTTP status 200, and the code 200 or 500 in its body, as executors expect. Code 200 means that the
// effect is durable: the registration is in Postgres, and all callbacks of the body are stored. Executors repeat a callback that was
// answered otherwise; some send it only once. Storing a callback again changes nothing.
//
// A body of callbacks is read, stored and dropped batch by batch. A callback that cannot be read is kept as a dead letter, and the others of its body
// are stored, because an executor that is refused repeats the whole body forever. If a body ends early, what came before is stored and
// the answer is 500.
//
// # Bounds
//
// Anyone who reaches the port can send requests. So there are limits for the connections, in total and for each source, for headers and bodies, and for
// the times in which a client must send a request and take its answer. The token and the network of a caller are checked before its body is read. Few bodies of callbacks
// are read at the same time, and each set of groups has a share of them, so that slow bodies of one group do not stop the callbacks of another. Beyond a limit, the
// connection is closed, or the answer is 500. Executors try again.
package inbound
