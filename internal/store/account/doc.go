// Package account keeps users, their log-ins and API tokens, executor groups and their tokens, the audit log, and the
// stored answers of idempotency keys.
//
// # Secrets
//
// Every token is 256 random bits behind a prefix for its purpose: bfs_ for a log-in, bft_ for an API token, bfg_ for a
// group's executors. Only the SHA-256 of a token is stored; a random token needs no slow hash. The token itself is
// returned once, by the call that creates it. Passwords are hashed with argon2id and stored as PHC strings, so that the
// parameters can be raised later: an older hash is replaced at the next log-in.
//
// # Rights
//
// A Principal is the user or token that a request acts for. An API token never has more rights than its owner currently
// has: the lesser of both roles and the common groups apply.
//
// Every error is a domain.Error, except ErrCredentials.
package account
