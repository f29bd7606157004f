// Package wire is the one Go definition of what executors and the rest of Belfry say to each other over NATS,
// version 1: subjects and JSON messages. docs/wire.md is its specification for other languages.
//
// Readers ignore fields they do not know, and a released field never changes its meaning. A message whose `v`
// is not 1 is refused by Decode, so that it lands in the dead letters instead of being half understood.
//
// The package decides nothing and imports the standard library only: package executor, which others import
// into their services, reaches nothing of Belfry but this.
package wire
