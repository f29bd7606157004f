// Package storetest is what every store of the engine must do: a table of behaviours that is run against Postgres and
// against the store in memory of the simulations. A behaviour that differs is a fault of one of them. How transactions
// meet each other is not in it: the store in memory has them one after the other, and internal/store tests its own.
package storetest
