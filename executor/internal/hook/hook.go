// Package hook lets package executortest make a Run of package executor and end it. Package executor exports neither, because
// no other user has a Run to make.
package hook

// NewRun makes an executor.Run from an executor.RunInfo. The lines of its log go to sink, a func(executor.Line), in order, one
// at a time. The function end closes the run as the executor does when a handler has returned, and returns the run's output.
// Package executor sets NewRun when a program starts; nothing changes it later. Its parameters are of type any because this
// package cannot import package executor, which imports it.
var NewRun func(info, sink any) (run any, end func() (output string))
