// Package protocol speaks the HTTP protocol between XXL-JOB's admin and its executors, in the role of the admin. It serves executors
// of the versions 2.2 to 3.4 and the announced 3.5, and those in other languages. It needs no settings, no database and no NATS.
//
// # Incoming messages
//
// Executors call /registry, /registryRemove and /callback, below /api or below /xxl-job-admin/api (see Endpoint). DecodeRegistration and
// Callbacks read the bodies of all versions, and AppendReply writes the answer. Reading is tolerant: unknown fields, numbers in quotes, messages that are
// any JSON value, both spellings of the time. Callbacks reads a body item by item in constant memory. An item that cannot be read is yielded
// with an error, and the items after it are still read, because an executor repeats a refused batch forever.
//
// # Outgoing calls
//
// An Executor calls /beat, /idleBeat, /run, /kill and /log of one address. The result of a call is one of four outcomes:
//
//	NotSent  no byte of the request was written, so the executor cannot have received it
//	Refused  the executor, or a proxy before it, answered that it did not carry out the call
//	Taken    the executor answered that it carried out the call
//	Unknown  anything else: no answer, an answer that cannot be read, an error text that this package does not know
//
// A /run whose outcome is Unknown may have started its handler, now or later. An executor does not recognize a repeated /run: it
// starts the handler again. So the package never sends a call twice. There is one exception: executors that do not know the path /run
// say so, and get the same call at /trigger.
//
// NotSent is exact, also if a call fails while its connection is made or while it waits for one. Each connection remembers whether it
// has written a part of the present request. When a call fails, it is sealed first, so that it cannot write afterwards.
// The caller of Run gives a check that the connection makes directly before the first byte is written, so that a process that was
// frozen does not start a run whose lease has ended.
//
// # Limits
//
// All bodies, texts, waits and idle connections have limits. Redirects are not followed. No proxy is used. Names are resolved, and connections
// made, by the dialer that the caller provides, which must decide which addresses may be reached.
//
// The files in testdata were recorded from real executors. testdata/README.md says how.
package protocol
