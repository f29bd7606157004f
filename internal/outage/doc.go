// Package outage says what is wrong with the servers and the roles that the engine needs, as far as one console sees it. The texts, which package explain holds, and the
// runbooks are those of the alerts in deploy/prometheus, so that a person reads the same words everywhere. The package has no input or output.
//
// A Watch keeps what was seen last and since when it is so. It knows nothing about the time before its process started, and each console has a
// separate Watch. So two consoles may name different instants for the same trouble, and a console whose network fails names troubles that the
// other consoles do not see.
//
//	kind                   key                       present while
//	server_unavailable     postgres, nats, jetstream the server cannot be reached by the console, or stores nothing
//	server_unavailable     nats_servers              some, but not all NATS servers do not answer
//	postgres_blocked       locks                     another transaction has blocked sessions of Belfry for 20 s
//	postgres_connections   connections               over 90 % of the connections have been taken for 20 s
//	role_missing           scheduler, dispatcher     no process of the role has been at work for 20 s
//	process_missing        a role                    for a minute, the role has had fewer processes than before
//
// Roles and locks are seen in Postgres. While it is unavailable, what was seen before remains.
package outage
