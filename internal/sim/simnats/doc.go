// Package simnats is a NATS server in memory, for simulations inside a testing/synctest bubble. The real nats.go
// client speaks to it through Link.Dial, so that what is simulated is the network and the server and not our code.
//
// It knows just the part of the protocol that Belfry uses: core publish, subscribe, requests with headers and "no
// responders"; streams with one retention by subject, age and work queue; conditional publishes; durable pull consumers
// with explicit acknowledgement, and ephemeral push consumers, as watches of a key-value bucket use them. No
// authentication, no clusters, no limits: those are tested with the real server.
//
// # Faults
//
// Faults decides, message by message, how long bytes take on a link and which messages vanish, and only where the real
// thing may lose them: a delivery to a client, an acknowledgement. Bytes of one connection keep their order, as TCP
// does. A Link may be cut (bytes wait, as they do while a network is down or a process is stopped) and killed (its
// process died). A Server may stop, start again, and lose its storage.
package simnats
