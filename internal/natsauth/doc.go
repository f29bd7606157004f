// Package natsauth decides which client may use which NATS subjects. The embedded server of standalone and an external
// cluster follow the same rules, because both call this package through NATS auth callout.
//
// # Three kinds of clients
//
// The system side (scheduler, dispatcher, console) is a user in the server's own configuration. It may use every
// subject of the account, and its log-ins never reach this package.
//
// Most other clients are executors. An executor connects with its group's token only: in Go nats.Token(token), in any
// language the auth_token of CONNECT or nats://TOKEN@host. The server does not know tokens. It forwards each such
// log-in to $SYS.REQ.USER.AUTH. A Responder asks its Verifier for the token's group and answers with a user JWT that
// holds Permissions(group). Any number of Responders run as one queue group, so that each log-in gets one answer: a
// server buffers two answers, and a third would block the connection that delivers it. A log-in that is forwarded to a
// Responder behind a frozen server of a cluster is lost. This is why deploy/nats/cluster.conf lets servers disconnect
// each other early.
//
// The third kind are senders of events. They connect with an API token of scope events and may publish events and
// nothing else. The token must have rights for all groups, because a message on NATS does not carry its sender. Their
// inbox prefix is InboxPrefix(SenderName(id of the token)); a sender that does not wait for acknowledgements needs
// none.
//
// # What an executor must set
//
//   - its group's token;
//   - the inbox prefix InboxPrefix(group), "_INBOX_" and the group, in Go nats.CustomInboxPrefix; the default
//     prefix _INBOX is shared by everyone and therefore refused;
//   - unlimited reconnects that continue after refused log-ins, in Go nats.MaxReconnects(-1) and
//     nats.IgnoreAuthErrorAbort(). Otherwise two refusals in a row, as during an outage of Postgres, close the
//     connection permanently.
//
// Heartbeats are ordinary acknowledged publishes to $KV.belfry_instances.<group>.<instance>, which is how a key is put;
// the wire contract defines the subject. Opening the bucket first, as nats.go's KeyValue() does, requests the stream's
// info and is refused, because stream info with a subject filter lists the keys of every group. Executors may use no
// JetStream API subject at all.
//
// # Why the permissions are safe
//
// Everything not allowed is denied. Three points need an argument:
//
//   - Answers. An executor may publish one answer to the reply subject of each message that it received. The
//     subjects it may publish to and those it may subscribe to are disjoint. So it cannot send itself a message with
//     a reply subject of its choice to gain the right to publish there.
//   - Reply subjects. NATS checks the subject of a message but not its reply subject, so an executor can make the
//     server send the acknowledgement of its own result to any subject, such as another group's trigger or
//     heartbeat. It chooses the subject but not the content, which stays {"stream":…,"seq":…}. So readers must treat
//     messages without a known version as malformed, never as the absence of the previous value. The JetStream API
//     refuses such a body, unless the server's strict mode is turned off.
//   - Headers. JetStream obeys the headers of publishers. Package natsinfra creates the streams so that no header
//     affects other groups: no roll-ups, no message TTLs, and no long duplicate window where executors publish.
//
// # Outages and replaced tokens
//
// If the Verifier accepts or rejects a token, its decision always counts. Only if it answers domain.Unavailable, or not in time,
// does a Responder use its cache of verified tokens. The cache is bounded and keyed by SHA-256. A token is removed as
// soon as the Verifier rejects it or accepts another token for the group.
//
// A replaced token opens no new connection. Existing connections end when their user JWT expires (Config.Lifetime); the
// client then reconnects with the token it has. The embedded server can close them at once
// (embednats.Server.DropGroup).
package natsauth
