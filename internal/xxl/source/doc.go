// Package source reads the definitions of a living XXL-JOB database: executors, jobs, scripts and users.
//
// The tables differ between the versions 2.1 to 3.5, and between forks on PostgreSQL. So the package asks information_schema which
// columns exist and reads those, all as text. It reads in one read-only transaction with a snapshot, so that the jobs agree with each
// other while the admin keeps scheduling, and takes the database's clock in the same transaction. It locks nothing and changes
// nothing. It never reads passwords or access tokens.
package source
