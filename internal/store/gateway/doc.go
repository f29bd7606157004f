// Package gateway keeps what gateways to XXL-JOB executors share: the groups that are open for such executors, the addresses that the
// executors have registered, and the runs that were sent to them.
//
// Each method is one transaction, except that Finish and Settle take a second one for sends that have ended or were settled before.
// Each error is a domain.Error. An error with the code Unavailable can be a deadlock of two batches; the caller repeats the call.
//
// # Addresses
//
// An address is an instance of its group. Its row has the boot id of the instance, so the boot ends when the row is removed, and not when
// a gateway process ends. One process owns the address under a lease. When the lease has ended, another process takes the address over:
// same boot id, epoch + 1. Every statement that accepts or sends an attempt locks the row of the address and compares owner, epoch and lease.
// So a former owner changes nothing, and a take-over waits for statements that are in progress.
//
// The lease ends on the database's clock. Send returns how much of it is left, and the caller must begin to write to the executor
// before that time has passed since it called Send, on each of its clocks. Otherwise the process could freeze after Send, and start an attempt that
// was declared lost in the meantime.
//
// # Sends
//
// A send is one attempt for one address, and its log id is the executor's name for it.
//
//	accepted   the offer was accepted; nothing was sent
//	sending    a /run is or was on its way; it may have arrived
//	taken      the executor answered that it took the run
//	unknown    the executor did not answer; the attempt counts as running, and is never sent again
//	ended      a callback has reported the end
//	lost       the gateway has reported the attempt as lost; a callback that comes later is reported as well
//	unstarted  the executor certainly did not start the attempt; the engine routes it again, as another send
//
//	accepted → sending → taken, unknown → ended, lost
//	accepted, sending, taken, unknown → unstarted        lost → ended
//
// An attempt has at most one send that is not unstarted; a unique index forbids a second one, on whatever address. Changes of the state are
// compare-and-set.
//
// The last three states have a result. It is published to the dispatchers again and again until a dispatcher has settled it. Settled sends are kept
// for a while, so that repeated callbacks are recognized: see Kept and LostKept.
//
// # Crash, delay, duplicate
//
//	crash after Accept                   the next owner ends the send as unstarted
//	crash after Send                     the next owner has the send as unknown: it may have arrived
//	crash after a callback was stored    its result is published again by the owner of the address
//	an owner releases during a call      the next owner has the send as unknown; the answer that the former owner gets is true
//	a frozen owner wakes up              its statements change nothing; what it was about to write is too late by its own clocks
//	a callback before the answer of /run the send has ended; the answer changes nothing
//	a repeated callback                  the first one counts
//	a callback of another group          is treated as one without a send
//	a callback of a send not sent        changes nothing: no row, no send
package gateway
