// Package alert knows the channels by which people hear of turns of a job: what a channel is made of, what is said, in
// which language and markup, and how it is delivered. It keeps nothing: package store/alerts does.
//
// # Delivery
//
// Send tries once, within a bound of time, and says whether trying again may help (Permanent). Whoever calls it tries
// again, so that a receiver may hear of an alert twice: each carries its id. A webhook is signed (see Sign).
//
// # Other people's text
//
// Names, messages and log lines of jobs are not their readers' own text. They lose control characters, are cut to a
// length, and are escaped for the channel's markup before a template sees them; where a channel knows a form without
// markup, that form is used. A template can neither run long nor write much: see template.go.
//
// # Where it connects to
//
// Channels are made by admins, and name hosts that this server then connects to. Link-local addresses, where clouds keep
// their secrets, are never connected to; other private ones are unless Config.DenyPrivate forbids it. It is the address
// itself that is judged, after its name was looked up. Redirects are not followed, and of what a host answers only the
// beginning is read.
package alert
