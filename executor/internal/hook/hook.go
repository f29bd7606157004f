// Package hook lets package executortest create and end a Run of package executor. Package executor does not export
// this, because no other package needs it.
package hook

// NewRun creates an executor.Run from an executor.RunInfo. It passes the run's log lines to sink, a
// func(executor.Line), in order, one at a time. The function end closes the run as the executor does after a handler
// has returned, and returns the run's output. Package executor sets NewRun at program start, and nothing changes it
// later. The parameters have type any, because package executor imports this package.
var NewRun func(info, sink any) (run any, end func() (output string))
