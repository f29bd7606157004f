package embedpg

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// setting is one line of postgresql.conf with its reason, which is written to the file as a comment.
type setting struct {
	name, value, why string
}

// durableSettings suit a job scheduler on a small machine: many short transactions, few long ones, and all data in
// memory most of the time.
func durableSettings() []setting {
	return []setting{
		{"fsync", "on", "Postgres holds the truth: an acknowledged run must survive a power failure."},
		{"synchronous_commit", "on", "A binding or a result lost after its commit would start a run twice."},
		{"full_page_writes", "on", "A page that is half written at a power failure must be repairable."},
		{"shared_buffers", "128MB", "Holds live runs and due times; the kernel caches the rest."},
		{"max_wal_size", "1GB", "Room for minutes of full load between checkpoints."},
		{"min_wal_size", "128MB", "Recycled files need not be created again under load."},
		{"checkpoint_timeout", "5min", "Bounds the time that recovery after a crash takes."},
		{"wal_compression", "on", "Full pages are most of the log, and disks are slower than this."},
		{"autovacuum_naptime", "15s", "Hot tables turn over within seconds."},
		{"autovacuum_vacuum_cost_delay", "2ms", "Fast enough to keep up, slow enough not to be felt."},
	}
}

// ephemeralSettings are for tests: no data has to outlive the process.
func ephemeralSettings() []setting {
	return []setting{
		{"fsync", "off", "The data is thrown away."},
		{"synchronous_commit", "off", "The data is thrown away."},
		{"full_page_writes", "off", "The data is thrown away."},
		{"wal_level", "minimal", "Tests have no replicas."},
		{"max_wal_senders", "0", "Tests have no replicas."},
		{"shared_buffers", "64MB", "Several test binaries run at once."},
		{"max_wal_size", "1GB", "The files may lie in memory."},
		{"checkpoint_timeout", "1h", "There is nothing to recover."},
		{"autovacuum", "off", "Statistics, and so plans, change only when a test changes them."},
	}
}

func commonSettings() []setting {
	return []setting{
		{"max_connections", "200", "Several roles with pools in one process, and room for psql."},
		{"idle_in_transaction_session_timeout", "60s", "A client stuck in a transaction would hold row locks and block vacuum permanently."},
		{"lock_timeout", "0", "Transactions that need a bound on waiting set it themselves."},
		{"jit", "off", "Compiling costs more than such short queries take."},
		{"random_page_cost", "1.1", "Solid-state disks and cached data: an index beats a scan early."},
		{"effective_io_concurrency", "0", "Prefetching is of no use for cached data, and not known to every system."},
		{"timezone", "UTC", "Instants are UTC; schedules have their own zones."},
		{"log_timezone", "UTC", "As above."},
		{"lc_messages", "C", "Errors are for logs and searches, independent of the reader's language."},
		{"log_destination", "stderr", "Belfry reads it and logs it at level debug."},
		{"logging_collector", "off", "As above."},
		{"log_line_prefix", "", "Belfry's own log adds the time."},
		{"cluster_name", "belfry", "Distinguishes these processes from another Postgres in ps."},
	}
}

// privateSettings restrict access to the owner. They come last, and the last value of a setting applies.
func (c *cluster) privateSettings(socketDir string) []setting {
	return []setting{
		{"listen_addresses", "", "No access by the network."},
		{"port", port, "Only a part of the socket's name."},
		{"unix_socket_directories", socketDir, "A directory of mode 0700: the system admits only its owner."},
		{"unix_socket_permissions", "0700", "The same once more."},
		{"hba_file", c.hbaFile(), "Lies beside this file."},
	}
}

// writeSettings writes postgresql.conf and pg_hba.conf at each start, so that a new version of Belfry applies its
// settings to an old cluster.
func (c *cluster) writeSettings(socketDir string, cfg Config) error {
	var conf strings.Builder
	conf.WriteString("# Written by Belfry at each start. Put your own settings into local.conf next to this file.\n")
	mode := durableSettings()
	if cfg.Ephemeral {
		mode = ephemeralSettings()
	}
	var own []setting
	for _, name := range slices.Sorted(maps.Keys(cfg.Settings)) {
		own = append(own, setting{name, cfg.Settings[name], "Asked for by the program."})
	}
	var local []setting
	// Postgres's include_if_exists would log at each start that the file does not exist.
	if path := filepath.Join(c.base, "local.conf"); exists(path) {
		local = append(local, setting{"include", path, "The operator's own settings."})
	}
	for _, s := range slices.Concat(mode, commonSettings(), own, local, c.privateSettings(socketDir)) {
		if !regexp.MustCompile(`^[a-z_][a-z0-9_.]*$`).MatchString(s.name) || strings.ContainsAny(s.value, "\r\n\x00") {
			return fmt.Errorf("the Postgres setting %q = %q is malformed", s.name, s.value)
		}
		quoted := strings.NewReplacer(`'`, `''`, `\`, `\\`).Replace(s.value)
		fmt.Fprintf(&conf, "\n# %s\n%s = '%s'\n", s.why, s.name, quoted)
	}
	hba := "# Written by Belfry at each start. Every user who can reach the socket may do everything in the cluster.\nlocal all all trust\nlocal replication all trust\n"
	for path, content := range map[string]string{c.configFile(): conf.String(), c.hbaFile(): hba} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return fmt.Errorf("write the settings of Postgres: %w", err)
		}
		// Another account must be able to read the files, regardless of the umask. If Postgres runs as the caller, the
		// directory around them is closed.
		if err := os.Chmod(path, 0o644); err != nil {
			return fmt.Errorf("write the settings of Postgres: %w", err)
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
