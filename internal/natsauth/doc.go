// Package natsauth decides which client may use which NATS subjects. The embedded server of standalone and an external
// cluster follow the same rules, because both call this package through NATS auth callout.
//
// # Three kinds of clients
//
// The system side (scheduler, dispatcher, console) is a user in the server's own configuration. It may use every
// subject of the account, and its log-ins never reach this package.
//
// Most other clients are executors. An executor connects with its group's token and the client name ClientName(group,
// instance): in Go nats.Token(token) and nats.Name(name), in any language auth_token and name of CONNECT. The server does
// not know tokens. It forwards each such log-in to $SYS.REQ.USER.AUTH. A Responder asks its Verifier for the token's group
// and answers with a user JWT that holds Permissions(group, instance). A client with a group's token and any other name is
// an observer: it gets ObserverPermissions(group). The token does not prove the name, so instances of a group are kept
// apart only from each other's mistakes.
//
// Any number of Responders run as one queue group, so that each log-in gets one answer: a server buffers two answers, and a
// third would block the connection that delivers it. A log-in that is forwarded to a Responder behind a frozen server of a
// cluster is lost. This is why deploy/nats/cluster.conf lets servers disconnect each other early.
//
// The third kind are senders of events. They connect with an API token of scope events and may publish events and
// nothing else. The token must have rights for all groups, because a message on NATS does not carry its sender. Their
// inbox prefix is InboxPrefix(SenderName(id of the token)); a sender that does not wait for acknowledgements needs
// none.
//
// # What an executor must set
//
//   - its group's token, and the client name ClientName(group, instance);
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
// # Shares of a group
//
// One group's log-ins and connections must not delay or refuse those of another group:
//
//   - A Responder puts each log-in into the lane of its token's group, or of its host if the token is not in the cache.
//     Lanes take turns, and each is bounded.
//   - Each group has a rate of log-ins, and so has each host of unknown tokens. A known group's rate is checked before the
//     Verifier is asked.
//   - Sessions count the connections of each group by the events of the servers, and confirm the count periodically. A
//     log-in beyond max_connections is refused. Several Responders can exceed it by the log-ins in progress.
//   - If dispatchers find more instances of a group than max_instances, they call AnnounceClosed. For a minute, all
//     Responders refuse log-ins of the group's instances that Config.Alive does not know.
//
// Warnings are sampled for each group, and all refusals are counted.
//
// # Outages and replaced tokens
//
// If the Verifier accepts or rejects a token, its decision always counts. Only if it answers domain.Unavailable, or not in time,
// does a Responder use its cache of verified tokens. An error of code internal says nothing about a token: the log-in is
// refused and the cache stays. The cache is bounded and keyed by SHA-256. It holds at most two tokens of a group. The
// Directory is asked about all of them periodically, and at once about those of a group whose change is announced.
//
// A replaced token opens no new connection. Its connections end because Sessions ask the Directory about the tokens of all
// connections every 15 s, and at once after AnnounceChange. A connection's user name at the server holds a fingerprint of
// its token, so any process can do this, also for log-ins that another process answered. Sessions need a connection to the
// system account. Without one, Config.Lifetime is ShortLifetime, and each client logs in again before a minute has passed.
// A log-in with a token whose end is known (an expiry, the end of an overlap) ends then in any case.
//
// While the Verifier is unavailable, connections stay open, and tokens cannot be replaced either.
package natsauth
