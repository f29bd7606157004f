// Package outbound serves the addresses that executors of XXL-JOB have registered. To the dispatchers, each address is an instance: it has heartbeats, answers
// offers and control requests, and publishes results and log lines. To the executors, it is their admin.
//
// # Ownership
//
// A process serves an address under a lease of Lease in Postgres, which it renews every RenewEvery. Processes take over addresses whose leases have ended. A
// process that cannot renew its lease is silent: it answers nothing and sends nothing, because another process may serve the address. It reads the lease on all its clocks
// after it has received a request and before it answers. So a request that it answers was published before another process could subscribe to
// the subjects of the address.
//
// A process that stops in order releases its addresses before the requests on their way have answers. It takes no more offers, gives back the attempts that wait,
// releases the leases in Postgres, and publishes a message, on which the other processes take the addresses over. Until a dispatcher has received a heartbeat of the new owner,
// both owners refuse offers as if the instance were full, because dispatchers avoid an instance for a while that refuses for other reasons. The stopping process still stores
// the answers of its requests and the settlement of what it gave back. If the message is lost, other processes find the addresses when they look.
//
// # An attempt
//
//  1. The send is stored as accepted, then the offer is answered. Without a row, nothing is sent.
//  2. When the attempt is due and no other run of its job is at the address, the row changes to sending if the lease holds. Then the request is
//     made. Directly before its first byte, the lease and the limit of the offer are checked once more.
//  3. The answer is stored. A request that certainly started nothing is unstarted, and the dispatchers route the attempt again. A request without an
//     answer counts as running, and is never repeated.
//  4. A callback ends the attempt. Any process can receive it. The process that stored it publishes the result, and the owner of the address publishes it again
//     until a dispatcher has settled it.
//
// # Attempts without a callback
//
// The owner asks the executor from time to time whether it still has a run of the job. If the executor denies that for long enough, or sends no
// registrations for long enough, the attempt is declared lost: see package address. Dispatchers never declare attempts of an address lost
// by themselves, because the address has a row in Postgres until its end.
package outbound
