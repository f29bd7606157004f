// Package simnats is a NATS server in memory, for simulations inside a testing/synctest bubble. The real nats.go client
// connects to it through Link.Dial, so only the network and the server are simulated.
//
// It implements the part of the protocol that Belfry uses: core publish, subscribe, requests with headers and "no responders";
// streams with one retention by subject, age and work queue; conditional publishes; durable pull consumers with explicit
// acknowledgement and a filter; and ephemeral push consumers, which watches of a key-value bucket use. It has no
// authentication, no clusters and no limits. Tests with the real server cover them.
//
// # Faults
//
// For each message, Faults decides the delay on a link and whether the message is lost. It loses only messages that a real
// network can lose: deliveries to a client, and acknowledgements. Bytes of one connection stay in order, as with TCP. A Link
// can be cut: bytes wait, as they do while a network is down or a process is stopped. It can be killed, when its process dies.
// A Server can stop, start again, and lose its storage.
package simnats
