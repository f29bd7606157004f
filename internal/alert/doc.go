// Package alert defines alert channels and alert messages, formats messages for each kind of channel, and delivers them. It has
// no storage of its own: package store/alerts stores channels and alerts.
//
// # Delivery
//
// Send tries to deliver a message once, within a time limit, and its error says whether a retry may succeed (Permanent). The
// caller retries, so a receiver may get an alert twice. Each message carries the alert's id. Webhooks are signed (see Sign).
//
// # Untrusted text
//
// Names, messages and log lines of jobs are untrusted text. Control characters are removed, and the text is shortened and escaped
// for the channel's markup before a template gets it. If a channel supports a form without markup, Send uses that form. Templates
// are bounded in time and output: see template.go.
//
// # Destinations
//
// Admins create channels, and channels name the hosts that this server connects to. Send never connects to link-local addresses,
// where cloud metadata services are. It connects to other private addresses unless Config.DenyPrivate is set. The check applies to
// the resolved address at the time of the connection. Send does not follow redirects, and reads only the beginning of a response.
package alert
