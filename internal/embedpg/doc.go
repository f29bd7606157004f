// Package embedpg runs the private Postgres of `belfry standalone` and of the
// tests: it finds or downloads the binaries, makes a cluster, starts it, stops
// it, and mends what a crash of either side left behind.
//
// # Who owns what
//
// One process owns a data directory: it holds a lock on DataDir/postgres.lock
// for as long as its Server is not stopped. The kernel releases the lock with
// the process, so it cannot go stale. Everything else follows from holding it:
// a Postgres found running on the directory is then nobody's, and is stopped.
//
// Under DataDir:
//
//	postgres.lock             the lock; holds the owner's process id
//	postgres/                 0700 (a link elsewhere in the last case below)
//	postgres/data/            the cluster; it exists whole or not at all
//	postgres/data.new/        an initdb under way, or cut off: then redone
//	postgres/postgresql.conf  written anew at each start
//	postgres/local.conf       the operator's own settings, read if present
//	postgres/pg_hba.conf      written anew at each start
//	postgres/running.lock     locked while any process of Postgres lives
//	postgres/run/             0700, the only socket
//
// # Who gets in
//
// Postgres listens on no TCP port. Its one socket lies in a directory with mode
// 0700, so the operating system admits the owner (and root) alone, and no
// password is needed that could leak. A socket path may have about a hundred
// bytes; where DataDir is longer, the socket lies in a directory of mode 0700
// with a random name under the system's temporary directory.
//
// # As whom it runs
//
// An ordinary user's Postgres runs as that user. Postgres refuses to run as
// root. For root it runs in a user namespace in which root appears as another
// account: it sees no root, while its files stay root's, also below a home that
// nobody else may enter. Where the kernel refuses namespaces, it runs as the
// account postgres or nobody, which then owns the cluster; if that account
// cannot reach DataDir, the cluster lies under /var/lib/belfry and
// DataDir/postgres is a link to it. Files that root writes then never lie in a
// directory which that account could change.
//
// # Crashes
//
//   - Belfry is killed: the kernel sends Postgres its fast shutdown (on Linux;
//     elsewhere a small shell waits for Belfry's end and does it). The next
//     Start stops whatever is left and goes on.
//   - Postgres is killed: Done is closed. The next Start stops orphaned
//     backends, and Postgres recovers from its write-ahead log.
//   - initdb is cut off: it works in data.new and is renamed after a sync.
package embedpg
