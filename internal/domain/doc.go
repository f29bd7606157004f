// Package domain defines the values that all layers share: jobs, schedules, policies, runs, attempts, their states, their ids
// and the domain error. It uses no clock, database or network, and imports the standard library only.
//
// The state machine of a run is one table, transitions in state.go. Postgres enforces it with compare-and-set statements, and
// tests compare those statements with the table.
package domain
