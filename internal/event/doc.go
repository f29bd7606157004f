// Package event decides what an event does: which event triggers its name matches, whether their filters let it pass,
// and which param their jobs get. It also reads events from what HTTP and NATS carry. It is pure: it is told the time,
// and touches neither database nor network.
//
// # Bounds
//
// Filters and templates are written by operators and fed by anybody who may send events, so that both are bounded in
// what they compute, not only in how long: a wall clock alone would fail sound filters on a busy machine.
//
// A filter (CEL) may cost as much as costMax says. Since the cost that cel-go accounts for comparing or adding up
// values is that of their outermost layer, a filter may not build values whose true size is larger than what was
// written down and sent: literals hold constants only, and what map makes may only pick from its own variable. Regular
// expressions are constants, and RE2.
//
// A template may take stepsMax turns of all its loops, write domain.MaxParamBytes, and its functions may return workMax
// bytes in all. Of Go's own functions it has only those that make no text.
//
// All triggers of one event together may cost eventCost, as thousands that keep to their bounds would else hold it up so
// long that it comes again for ever. Which of them are evaluated hangs on what they cost: each is tried with little effort
// first. The clock (evalMax) is the last resort.
package event
