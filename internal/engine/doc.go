// Package engine defines the values that the roles and the store exchange while they plan, fire, route and settle runs: a run
// as Postgres holds it, a binding, the end of an attempt, and the result of each store method. The store and the roles import
// this package, and do not import each other. It contains no decisions and no access to a database or a network.
//
// The flow of the values: planning returns Planned with Due values for the time ring. Firing turns a Due into an Admission,
// and Admit answers with Admitted. An attempt ends as an Ended, and Settle answers with a SettleResult. Released runs in a
// result are held runs whose block slot is free now; the caller must fire them.
package engine
