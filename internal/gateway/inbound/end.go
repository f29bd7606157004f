package inbound

import (
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/xxl/protocol"
)

// maxMessage is the maximum length of a run's message, in bytes.
const maxMessage = 16 << 10

// EndOf returns what a callback means for its run. A message of a success is the run's output, because XXL-JOB has no other place for it.
func EndOf(c protocol.Callback) gateway.End {
	e := gateway.End{LogID: c.LogID}
	switch c.End {
	case protocol.EndSucceeded:
		e.Result = gateway.Result{Outcome: "succeeded", Output: c.Message}
		return e
	case protocol.EndTimedOut:
		e.Result = gateway.Result{Outcome: "failed", Reason: "timeout"}
	case protocol.EndFailed:
		e.Result = gateway.Result{Outcome: "failed", Reason: "handler_error"}
	case protocol.EndKilled: // without a kill of ours, the executor has stopped or has replaced the script
		e.Result, e.Killed = gateway.Result{Outcome: "failed", Reason: "lost"}, true
	case protocol.EndNotExecuted:
		e.Result = gateway.Result{Outcome: "unstarted"}
	}
	e.Result.Message = protocol.Clip(c.Message, maxMessage)
	return e
}
