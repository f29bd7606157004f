// Package trace says to which trace a run belongs, and computes the ids of its spans.
//
// # Where a trace begins
//
// A run belongs to one trace, from its trigger to its last attempt:
//
//   - A run that the API or an event triggers continues the caller's trace if the request has a W3C traceparent header, or the event
//     has one or has the CloudEvents attribute traceparent. (A CloudEvent's own attribute takes precedence, because it describes
//     the event and not its transport.)
//   - A child continues its parent's trace.
//   - All other runs begin a trace: runs by schedule, misfires, backfills, triggers and events without a traceparent, and retries of
//     final runs.
//   - A retry is another attempt of the same run. It stays in the run's trace. So do all shards of a broadcast.
//
// A traceparent that cannot be read is ignored, as W3C Trace Context demands. Belfry drops tracestate.
//
// # What is stored
//
// The ids are computed and not stored wherever possible. The id of a trace that a run begins is a hash of the run's id, or of the
// id of shard 0. The ids of the spans of a run and of an attempt are hashes too. So a process that knows a run also knows its
// trace, in every process and after every crash. Two processes that export the same span give it the same id.
//
// Only a continued trace must be stored. It is in column trace of the run, written in the transaction that creates the run. A null
// means that the run begins its trace. A child stores its parent's trace, because it has no other way to know the id of the first
// run.
//
// The hash matters for the trace id: ratio samplers read its last 8 bytes as a number, and those of a run's id are not
// uniform.
//
// # Sampling
//
// A stored trace has the caller's sampled flag. A trace that a run begins has none: every process that exports spans asks its sampler,
// which decides by the trace id, so that all processes with the same settings decide the same.
//
// # What may be lost
//
// Postgres stores the truth, spans do not. A process exports a run's spans after the transaction that ends the run. If it dies in
// between, the spans are missing, and the run is not affected.
package trace
