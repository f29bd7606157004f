// Package account keeps users, their log-ins and their API tokens.
//
// # Secrets
//
// Package bearer makes the tokens of log-ins and API tokens. Passwords are hashed with argon2id and stored as PHC strings, so
// that the parameters can be raised later: an older hash is replaced at the next log-in.
//
// # Rights
//
// A Principal is the user or token that a request acts for. An API token never has more rights than its owner currently
// has: the lesser of both roles and the common groups apply.
//
// Every error is a domain.Error, except ErrCredentials.
package account
