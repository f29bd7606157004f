// Package memstore implements the engine's store in memory, for simulated clusters. It behaves like internal/store:
// package storetest tests both with the same suite.
//
// A DB is the database. A Store is the access of one process to it, with that process's estimate of the database's
// clock. One mutex makes every method a transaction that runs alone. The conflicts that the Postgres store handles with
// locks and retries therefore cannot occur here; they are tested there. The decisions that the Postgres store makes in
// queries and in Go are plain loops here. Both stores use internal/plan and internal/schedule.
//
// The package validates only the schedule of a job, and does not reject cycles of child jobs.
package memstore
