// Package domain holds Belfry's vocabulary: jobs, schedules, policies, runs, attempts, their states and
// the errors that every layer speaks. It decides nothing that needs a clock, a database or a network, and it
// imports the standard library only.
//
// The state machine of a run is one table, transitions in state.go. Postgres enforces it by compare-and-set;
// the table is what those statements are tested against.
package domain
