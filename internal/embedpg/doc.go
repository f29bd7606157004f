// Package embedpg runs the private Postgres of `belfry standalone` and of the tests: it finds or downloads the
// binaries, creates a cluster, starts it, stops it, and repairs the state after a crash of Belfry or Postgres.
//
// # Ownership
//
// One process owns a data directory: it holds a lock on DataDir/postgres.lock until its Server is stopped. The kernel
// releases the lock with the process, so it cannot become stale. The owner may conclude that a Postgres already running
// on the directory has no owner, and stops it.
//
// Under DataDir:
//
//	postgres.lock             the lock; holds the owner's process id
//	postgres/                 0700 (a link elsewhere in the last case below)
//	postgres/data/            the cluster; it exists whole or not at all
//	postgres/data.new/        an initdb in progress, or interrupted; then it is repeated
//	postgres/postgresql.conf  written anew at each start
//	postgres/local.conf       the operator's own settings, read if present
//	postgres/pg_hba.conf      written anew at each start
//	postgres/running.lock     locked while any process of Postgres lives
//	postgres/run/             0700, the only socket
//
// # Access
//
// Postgres does not listen on TCP. Its only socket is in a directory with mode 0700, so the operating system admits
// only the owner (and root), and there is no password that could leak. A socket path may have about a hundred bytes. If
// DataDir is longer, the socket is in a directory of mode 0700 with a random name under the system's temporary
// directory.
//
// # The account of Postgres
//
// An ordinary user's Postgres runs as that user. Postgres refuses to run as root. For root, it runs in a user namespace
// in which root appears as another account: Postgres does not see that it is root, while its files still belong to
// root, also below a home directory that no other user may enter. If the kernel refuses namespaces, Postgres runs as
// the account `postgres` or `nobody`, which then owns the cluster. If that account cannot reach DataDir, the cluster is
// under /var/lib/belfry, and DataDir/postgres is a link to it. So the files that root writes are never in a directory
// that the other account can change.
//
// # Crashes
//
//   - Belfry is killed: the kernel sends Postgres the signal for a fast shutdown (on Linux; elsewhere a small shell
//     waits for Belfry's end and sends it). The next Start stops all remaining processes and continues.
//   - Postgres is killed: Done is closed. The next Start stops orphaned
//     backends, and Postgres recovers from its write-ahead log.
//   - initdb is interrupted: it works in data.new, which is renamed after a sync.
package embedpg
