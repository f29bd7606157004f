// Package dispatcher decides where a run goes and takes in what came of it: Fire, offers, results, retries,
// children, logs, and the reconcilers that find what got lost on the way.
//
// # Guarantees
//
// An attempt is bound in Postgres to one boot of one instance before it is offered to it. The offer carries the
// counter of its round, `bind`, and every answer acts only by compare-and-set on it. So an attempt is started at
// most once, without any acknowledgement protocol: whoever acts on old knowledge changes nothing.
//
// After an offer without an answer nobody knows whether the instance has the attempt. From then on only that
// boot's own refusal, or its death, frees it. "No responders" to a first offer says that it surely reached nobody.
//
// A result is acknowledged to JetStream after its transaction has committed, and the executor keeps it until it is
// told so.
//
// # Who holds the truth
//
// Postgres. The roster is a view, the maps of accepted attempts and of waiting kinds are hints that save work;
// losing them costs a second or two.
//
// # Crash, delay, duplicate
//
//	crash after bind, before offer       the run is silent: its instance is asked, does not know it, is offered it
//	crash after offer, before answer     the run is silent: its instance is asked, and has it
//	an instance dies                     its lease ends, it answers no ping, its last results are settled: lost
//	a result comes twice                 the second one finds the attempt ended and changes nothing
//	NATS is away                         runs wait as queued, unbound; nobody is named lost
//	Postgres is away                     results stay in the stream and in the executors' spools
//
// # Ordered end
//
// When its context ends, a dispatcher takes no more, waits for the answers to its offers, and settles what it has
// fetched.
package dispatcher
