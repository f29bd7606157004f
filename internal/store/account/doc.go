// Package account keeps who may do what: users, their log-ins and API tokens, executor groups and their tokens,
// the audit log, and the answers kept for idempotency keys.
//
// # Secrets
//
// Every token is 256 random bits behind a prefix that says what it is for: bfs_ a log-in, bft_ an API token, bfg_
// a group's executors. Only the SHA-256 of a token is stored; being random, it needs no slow hash. The token
// itself is answered once, by the call that makes it. Passwords are hashed with argon2id and stored as PHC
// strings, so that the parameters can grow: an older hash is replaced at the next log-in.
//
// # Rights
//
// A Principal is who a request acts for. An API token never has more rights than its owner has at that moment:
// the lesser role and the common groups of both hold.
//
// Every error is a domain.Error, save ErrCredentials.
package account
