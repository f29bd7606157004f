// Package match decides what an incoming event does: which of its triggers fire, and the param of each run. It compiles and
// evaluates the triggers' filters (CEL) and params (Go templates). It is pure and uses neither database nor network.
//
// # Bounds
//
// Operators write filters and templates, and anybody who may send events supplies their input. Both are therefore bounded by
// the amount of computation. A time limit alone would also end correct filters on a busy machine.
//
// A filter may cost at most costMax. For a comparison or an addition, cel-go counts only the outermost level of nested values.
// A filter therefore cannot build values that are larger than its own text and the event's data: list and map literals hold
// constants only, and the result expression of map uses only map's own variable. Regular expressions are constants, in RE2
// syntax.
//
// A template may take stepsMax iterations in all its loops together and write domain.MaxParamBytes. Its functions may return
// workMax bytes in total. Of Go's predefined functions, it may use only those that return no text.
//
// All triggers of one event together may cost eventCost. Otherwise, thousands of triggers, each within its own bound, could
// delay the event so long that NATS delivers it again, forever. Cheap triggers are evaluated first, because Decide gives all
// triggers a small budget before it gives any of them a larger one. The time limit (evalMax) is the last resort.
package match
