// Package address decides for one address of an executor of XXL-JOB, which is one instance of the wire protocol. It is pure: the caller passes the
// readings of the clocks, and does what the decisions say.
//
// A Machine judges offers and keeps the attempts that were accepted, a Presence judges from registrations whether the executor is there, and
// a Suspicion judges whether a run has ended without a callback.
//
// # Attempts
//
//	judging   the offer is judged, and its send is not stored yet
//	waiting   the send is stored; the attempt waits until it is due, or until another run of its job has ended at this address
//	sending   the request to the executor may be on its way
//	running   the executor has taken the run, or has not answered
//	ended     the end is stored, and is not settled yet
//
//	judging → waiting → sending → running → ended
//	judging → forgotten or refused      waiting, sending → ended (not started)
//
// An attempt takes a slot until it has ended. An executor runs at most one run of a job at a time, so a second one waits in its slot: see Turn.
//
// # What the process does not know
//
// A Machine has no memory of an earlier owner of the address. It needs none: it refuses offers that rely on a heartbeat that it did not
// send, and Postgres accepts an attempt only if it has no send. Attempts that the earlier owner sent are restored from Postgres.
package address
