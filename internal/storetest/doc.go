// Package storetest defines the required behaviour of every store of the engine: a table of behaviours that is run
// against Postgres and against the in-memory store of the simulations. If a behaviour differs, one of them is faulty.
// Concurrent transactions are not part of it: the in-memory store runs them one after another, and internal/store has
// its own tests.
package storetest
