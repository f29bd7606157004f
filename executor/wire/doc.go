// Package wire is the only Go definition of the messages between executors and the rest of Belfry over NATS, version 1:
// subjects and JSON messages. docs/wire.md is the specification for other languages.
//
// Readers ignore unknown fields, and a released field never changes its meaning. Decode refuses a message whose `v` is
// not 1. The message then becomes a dead letter and is not partly understood.
//
// The package makes no decisions and imports only the standard library. Other programs import package executor into
// their services, and package executor imports no other package of Belfry.
package wire
