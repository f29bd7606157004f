// Package natsauth decides who may use which NATS subjects. The embedded server of standalone and an external
// cluster follow the same rules, because both ask this package through NATS auth callout.
//
// # Three kinds of clients
//
// The system side (scheduler, dispatcher, console) is a user of the server's own configuration, may use every
// subject of the account and is never asked about here.
//
// Most others are executors. One connects with its group's token and nothing more, in Go nats.Token(token),
// in any language the auth_token of CONNECT or nats://TOKEN@host. The server does not know tokens: it sends
// each such log-in to $SYS.REQ.USER.AUTH, a Responder asks its Verifier whose token it is, and answers with a
// user JWT that holds Permissions(group). Any number of Responders run side by side as one queue group, so
// that each log-in has one answer: a server has room for two, and the third would block the connection that brings
// it. One that is handed to a Responder behind a frozen server of a cluster is lost, which is why
// deploy/nats/cluster.conf has servers give each other up soon.
//
// Senders of events are the third: they connect with an API token of scope events, whose rights are of all groups, since a
// message on NATS does not say who sent it, and may publish events and nothing else. Their inbox prefix is
// InboxPrefix(SenderName(id of the token)); who publishes without waiting for an answer needs none.
//
// # What an executor must set
//
//   - its group's token;
//   - the inbox prefix InboxPrefix(group), "_INBOX_" and the group, in Go nats.CustomInboxPrefix; the default
//     prefix _INBOX is shared by everyone and therefore refused;
//   - endless reconnecting that survives refused log-ins, in Go nats.MaxReconnects(-1) and
//     nats.IgnoreAuthErrorAbort(); else two refusals in a row, as during an outage of Postgres, end the
//     connection for good.
//
// Heartbeats are ordinary acknowledged publishes to $KV.belfry_instances.<group>.<instance>; that is all that
// putting a key is, and the subject is named by the wire contract. Opening the bucket first, as nats.go's
// KeyValue() does, asks for the stream's info and is refused: stream info lists the keys of every group to
// whoever asks it with a subject filter. No JetStream API subject is open to executors at all.
//
// # Why the permissions hold
//
// Everything not allowed is denied. Three things need an argument:
//
//   - Answers. An executor may publish one answer to the reply subject of each message that it received. What
//     it can publish to and what it can subscribe to have no subject in common, so it cannot send itself a
//     message with a reply subject of its choice and win the right to publish there.
//   - Reply subjects. NATS checks where a message goes, not where its reply is asked to go, so an executor can
//     have the server send the acknowledgement of its own result to any subject, such as another group's
//     trigger or heartbeat. It chooses the place but not the content, which stays {"stream":…,"seq":…}. Readers
//     must therefore treat what has no known version as malformed, never as the absence of what was there
//     before. The JetStream API refuses such a body, unless the server's strict mode was turned off.
//   - Headers. JetStream obeys headers of publishers. Package natsinfra creates the streams so that none of them
//     reaches across groups: no roll-ups, no message TTLs, and no long duplicate window where executors publish.
//
// # Outages and replaced tokens
//
// The verdict of the Verifier always counts where there is one. Only when it answers domain.Unavailable, or not
// in time, does a Responder fall back on what it saw verified before; that cache is bounded, keyed by SHA-256
// and emptied of a token as soon as the Verifier disowns it or names another token for the group.
//
// A replaced token opens no new connection. Connections that exist end when their user JWT expires
// (Config.Lifetime); the client then reconnects with the token it has. The embedded server can end them at once
// (embednats.Server.DropGroup).
package natsauth
