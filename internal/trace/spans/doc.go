// Package spans exports the spans of runs by OTLP, if the usual OTEL_* variables name an endpoint.
//
// # The spans
//
//	trigger, event    a request with a traceparent header, in the console
//	run JOB           from the trigger, or the fire time, to the end of the run
//	  attempt         from the binding to an instance to the end of the attempt
//	    offer         from the message to the instance to its answer
//	    handle NAME   the handler; the executor's process exports it, see executor/otel
//	    result        from the end of the handler until the result is settled
//	  run CHILD       a child, with the same spans
//
// The ids of run and attempt are computed (see package trace), so that processes need not tell each other. The process that settles the
// end of a run exports the spans of the run and of all its attempts together. It reads them from the history after the
// commit, so the hot paths only pass on the ids of finished runs.
//
// # Limits
//
// The ids of finished runs wait in a queue of a fixed length. If it is full, or Postgres or the collector is unavailable, spans are
// dropped and counted. No run waits for them.
//
// # Off
//
// Without an endpoint, New returns nil, and no process holds a Spans. A run then costs a nil check in the sender of offers and one in the
// announcer, and no allocation.
package spans
