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

// setting is one line of postgresql.conf, with its reason, which is written
// there too: whoever looks at the file wants to know it.
type setting struct {
	name, value, why string
}

// durableSettings suit a job scheduler on a small machine: many short
// transactions, few long ones, all data in memory most of the time.
func durableSettings() []setting {
	return []setting{
		{"fsync", "on", "Truth is in Postgres: a run that was answered for must outlive a power cut."},
		{"synchronous_commit", "on", "A binding or a result lost after its commit would start a run twice."},
		{"full_page_writes", "on", "A page half written when the power fails must be mendable."},
		{"shared_buffers", "128MB", "Holds live runs and due times; the kernel caches the rest."},
		{"max_wal_size", "1GB", "Room for minutes of full load between checkpoints."},
		{"min_wal_size", "128MB", "Files that are recycled need not be made anew under load."},
		{"checkpoint_timeout", "5min", "Bounds the time that recovery after a crash takes."},
		{"wal_compression", "on", "Full pages are most of the log, and disks are slower than this."},
		{"autovacuum_naptime", "15s", "Hot tables turn over within seconds."},
		{"autovacuum_vacuum_cost_delay", "2ms", "Fast enough to keep up, slow enough not to be felt."},
	}
}

// ephemeralSettings are for tests: nothing has to outlive the process.
func ephemeralSettings() []setting {
	return []setting{
		{"fsync", "off", "The data is thrown away."},
		{"synchronous_commit", "off", "The data is thrown away."},
		{"full_page_writes", "off", "The data is thrown away."},
		{"wal_level", "minimal", "Nobody replicates a test."},
		{"max_wal_senders", "0", "Nobody replicates a test."},
		{"shared_buffers", "64MB", "Several test binaries run at once."},
		{"max_wal_size", "1GB", "The files may lie in memory."},
		{"checkpoint_timeout", "1h", "There is nothing to recover."},
		{"autovacuum", "off", "Statistics, and so plans, change when a test says so."},
	}
}

func commonSettings() []setting {
	return []setting{
		{"max_connections", "200", "Several roles with pools in one process, and room for psql."},
		{"idle_in_transaction_session_timeout", "60s", "A client stuck in a transaction would hold row locks and vacuum for ever."},
		{"lock_timeout", "0", "Who needs a bound on waiting sets it by transaction."},
		{"jit", "off", "Compiling costs more than such short queries take."},
		{"random_page_cost", "1.1", "Solid-state disks and cached data: an index beats a scan early."},
		{"effective_io_concurrency", "0", "Prefetching is of no use for cached data, and not known to every system."},
		{"timezone", "UTC", "Instants are UTC; zones are the schedule's matter."},
		{"log_timezone", "UTC", "As above."},
		{"lc_messages", "C", "Errors are for logs and searches, not for one reader's language."},
		{"log_destination", "stderr", "Belfry reads it and logs it at level debug."},
		{"logging_collector", "off", "As above."},
		{"log_line_prefix", "", "Belfry's own log adds the time."},
		{"cluster_name", "belfry", "Tells these processes from another Postgres in ps."},
	}
}

// privateSettings keep everyone else out. They come last, and the last wins.
func (c *cluster) privateSettings(socketDir string) []setting {
	return []setting{
		{"listen_addresses", "", "Nobody comes in by the network."},
		{"port", port, "Only a part of the socket's name."},
		{"unix_socket_directories", socketDir, "A directory of mode 0700: the system admits its owner alone."},
		{"unix_socket_permissions", "0700", "The same once more."},
		{"hba_file", c.hbaFile(), "Lies beside this file."},
	}
}

// writeSettings writes postgresql.conf and pg_hba.conf anew, so that a new
// version of Belfry brings its settings to an old cluster.
func (c *cluster) writeSettings(socketDir string, cfg Config) error {
	var conf strings.Builder
	conf.WriteString("# Written by Belfry at each start. Put settings of your own into local.conf beside this file.\n")
	mode := durableSettings()
	if cfg.Ephemeral {
		mode = ephemeralSettings()
	}
	var own []setting
	for _, name := range slices.Sorted(maps.Keys(cfg.Settings)) {
		own = append(own, setting{name, cfg.Settings[name], "Asked for by the program."})
	}
	var local []setting
	// Postgres's include_if_exists would log at each start that there is none.
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
	hba := "# Written by Belfry at each start. Whoever can reach the socket owns the cluster.\nlocal all all trust\n"
	for path, content := range map[string]string{c.configFile(): conf.String(), c.hbaFile(): hba} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return fmt.Errorf("write the settings of Postgres: %w", err)
		}
		// Whatever the umask says, another account than ours must be able to
		// read them; where there is none, the directory around them is closed.
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
