// Package memstore keeps in memory what internal/store keeps in Postgres, with the same behaviour: package storetest
// holds both to one suite. It is the truth of simulated clusters.
//
// A DB is the database; a Store is what one process has of it, with that process's idea of the database's clock. One
// mutex makes every method a transaction that is alone. So what the Postgres store guards against with locks and
// repeats cannot happen here, and is tested there; what its queries and its Go code decide is decided here in plain
// loops, with internal/plan and internal/schedule doing the same part.
//
// It validates no more of a job than its schedule, and refuses no cycles of children.
package memstore
