// Package intake takes messages from JetStream streams and passes them to the packages that process them. It also stores
// messages that cannot be processed as dead letters.
//
// Groups share the streams of results and log lines, and each stream has one durable consumer, which all dispatchers share. A
// consumer for each group would cost fifteen times the CPU per message with 1,000 groups. JetStream delivers in the order of
// arrival, so the messages of one group could delay those of all others. A Fair prevents this.
//
// Run is the simple form, without shares. The stream of events uses it.
//
// # Guarantees of a Fair
//
//   - The first message of a group waits at most for the batches in progress, and then for one message or 64 KiB of each other
//     group, however many messages those groups have. A message larger than 64 KiB waits for one such round per 64 KiB. Before that, it
//     waits for FairConfig.Gather if the messages do not fill a batch.
//   - A message is acknowledged after it was handled, or after it was stored elsewhere. The only exceptions are messages of a group
//     that exceeds its share of all bounds: they are counted and acknowledged.
//   - Within a group, messages are handled in the order of arrival, except for redeliveries and messages that exceeded the share.
//
// # How it works
//
// A fetcher takes messages as fast as JetStream delivers them. It does not decode them, and appends each to the queue of its
// group. Workers take batches from the queues by deficit round robin: each visit to a queue adds 64 KiB to the group's credit, and
// takes messages as long as the credit lasts. A message costs its size plus 4 KiB. The constant represents the work that does not
// depend on the size. A batch has at most 1 MiB, unless its only message is larger, and a maximum number of messages.
//
// # Bounds
//
//	queues     64 MiB for each group and 256 MiB for each process and kind; a message counts 512 bytes or more. If the process is
//	           full, the newest messages of the largest group make room.
//	excess     messages beyond these bounds wait in a second set of queues, 8 MiB for each group and 32 MiB in all, until Excess
//	           has stored them elsewhere.
//	beyond     Shed is called with each further message. It counts and acknowledges the message, which is not handled.
//
// Messages that are being handled count in the bounds too.
//
// If handling fails because Postgres is unavailable, nothing can be settled. Then a full queue stops the fetcher, and the messages
// stay in the stream.
//
// # Where the truth is stored
//
// The stream stores the truth. A message in a queue is not acknowledged. The Fair extends its acknowledgement time as long as the
// message waits.
//
// # Crash, delay, duplicate
//
//	crash                       JetStream delivers the messages of the process again, after AckWait
//	shutdown                    the queues are processed for some seconds; the rest is handed back and delivered again at once
//	frozen for over AckWait     JetStream delivers the messages again, to any dispatcher; handling a message twice does no harm
//	redelivery of a held one    the new delivery replaces the older one; the message is handled once
//	NATS is unavailable         the queues are processed; lost acknowledgements cause redeliveries
//	the stream was deleted      the queues are processed; new messages have other times, so none is mistaken for an older one
package intake
