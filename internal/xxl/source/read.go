package source

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/jackc/pgx/v5"
)

// The bounds of what Read reads. A larger database is an error, because a part of it would be a wrong picture.
const (
	mostRows    = 100_000
	mostLogRows = 2000 // newest rows of xxl_job_log
	connectWait = 15 * time.Second
)

// Read reads the database at dsn: mysql://user:password@host:port/database or postgres://….
// A mysql DSN may name a socket: mysql://user@/database?socket=/run/mysqld/mysqld.sock.
func Read(ctx context.Context, dsn string) (*Database, error) {
	db, d, err := open(dsn)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", d.name, err)
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d.name, err)
	}
	defer tx.Rollback() //nolint:errcheck // it has changed nothing
	out, err := (&reader{ctx, tx, d, nil}).read()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d.name, err)
	}
	return out, nil
}

// dialect is what differs between the database systems.
type dialect struct {
	engine, name string
	schema       string // SQL for the schemas to look in, after "table_schema IN"
	clock        string // SQL for milliseconds since 1970
	text, quote  string // how to cast a column to text; the quote of identifiers
	index        string // SQL that counts the indexes of xxl_job_log that begin with job_id
}

// ErrDSN means that a DSN has a wrong form.
var ErrDSN = errors.New("the DSN must be mysql://user:password@host:port/database or postgres://user:password@host:port/database")

func open(dsn string) (*sql.DB, dialect, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, dialect{}, ErrDSN // the error of url.Parse contains the password
	}
	switch u.Scheme {
	case "mysql", "mariadb":
		return openMySQL(u)
	case "postgres", "postgresql":
		c, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, dialect{}, ErrDSN
		}
		c.ConnectTimeout = connectWait
		return stdlib.OpenDB(*c), dialect{
			engine: "postgres", name: fmt.Sprintf("%s/%s", net.JoinHostPort(c.Host, fmt.Sprint(c.Port)), c.Database),
			schema: "(SELECT unnest(current_schemas(false)))", clock: "SELECT (extract(epoch FROM now()) * 1000)::bigint::text",
			text: `"%s"::text`, quote: `"`,
			index: "SELECT count(*)::text FROM pg_indexes WHERE lower(tablename) = 'xxl_job_log' AND indexdef ~* '\\(\"?job_id'",
		}, nil
	}
	return nil, dialect{}, ErrDSN
}

func openMySQL(u *url.URL) (*sql.DB, dialect, error) {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName = "tcp", u.Host, strings.Trim(u.Path, "/")
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Timeout, c.ReadTimeout = connectWait, 5*time.Minute
	q := u.Query()
	for name := range q {
		switch name {
		case "socket":
			c.Net, c.Addr = "unix", q.Get(name)
		case "tls":
			c.TLSConfig = q.Get(name)
		default:
			return nil, dialect{}, fmt.Errorf("the DSN has the unknown parameter %q; socket and tls are supported", name)
		}
	}
	if c.DBName == "" || c.User == "" || c.Addr == "" {
		return nil, dialect{}, ErrDSN
	}
	if c.Net == "tcp" && u.Port() == "" {
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, dialect{}, fmt.Errorf("the DSN is not valid: %w", err)
	}
	return sql.OpenDB(connector), dialect{
		engine: "mysql", name: c.Addr + "/" + c.DBName, schema: "(DATABASE())", clock: "SELECT CAST(ROUND(UNIX_TIMESTAMP(NOW(3)) * 1000) AS CHAR)",
		text: "CAST(`%s` AS CHAR)", quote: "`",
		index: "SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE() AND LOWER(table_name) = 'xxl_job_log' AND LOWER(column_name) = 'job_id' AND seq_in_index = 1",
	}, nil
}

type reader struct {
	ctx context.Context //nolint:containedctx // a reader lives as long as one call
	tx  *sql.Tx
	d   dialect
	t   *tables
}

func (r *reader) read() (*Database, error) {
	var err error
	if r.t, err = r.tables(); err != nil {
		return nil, err
	}
	if err := r.t.check(r.d.name); err != nil {
		return nil, err
	}
	out := &Database{Engine: r.d.engine, Name: r.d.name, Version: r.t.version()}
	var millis int64
	if err := r.tx.QueryRowContext(r.ctx, r.d.clock).Scan(&millis); err != nil {
		return nil, err
	}
	out.ReadAt = time.UnixMilli(millis).UTC()
	return out, errors.Join(r.groups(out), r.jobs(out), r.users(out), r.logs(out))
}

func (r *reader) tables() (*tables, error) {
	t := &tables{columns: map[string]map[string]column{}}
	//nolint:gosec // only constants are concatenated
	rows, err := r.tx.QueryContext(r.ctx, "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE LOWER(table_name) IN ('"+
		strings.Join([]string{tableGroup, tableInfo, tableUser, tableLog}, "','")+"') AND table_schema IN "+r.d.schema)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err reports failed reads
	for rows.Next() {
		var table, name, kind string
		if err := rows.Scan(&table, &name, &kind); err != nil {
			return nil, err
		}
		table = strings.ToLower(table)
		if t.columns[table] == nil {
			t.columns[table] = map[string]column{}
		}
		t.columns[table][strings.ToLower(name)] = column{name, strings.ToLower(kind)}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	var indexes int
	if err := r.tx.QueryRowContext(r.ctx, r.d.index).Scan(&indexes); err != nil {
		return nil, err
	}
	t.logIndexed = indexes > 0
	return t, nil
}

// row holds the texts of a row by column. A column that the table does not have is empty.
type row map[string]string

func (w row) number(name string) int64 {
	switch strings.ToLower(w[name]) { // forks on PostgreSQL have boolean columns
	case "t", "true":
		return 1
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(w[name]), 10, 64) // an empty or foreign text counts as 0
	return n
}

// each calls use for the rows of a table, with those of the columns that exist.
func (r *reader) each(table, tail string, columns []string, use func(row)) error {
	var names, exprs []string
	for _, name := range columns {
		if c, ok := r.t.columns[table][name]; ok {
			names = append(names, name)
			exprs = append(exprs, fmt.Sprintf(r.d.text, c.name))
		}
	}
	//nolint:gosec // names of columns are those that this package knows
	rows, err := r.tx.QueryContext(r.ctx, "SELECT "+strings.Join(exprs, ", ")+" FROM "+table+" "+tail)
	if err != nil {
		return fmt.Errorf("table %s: %w", table, err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err reports failed reads
	values := make([]sql.NullString, len(names))
	into := make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	for n := 0; rows.Next(); n++ {
		if n == mostRows {
			return fmt.Errorf("table %s has more than %d rows", table, mostRows)
		}
		if err := rows.Scan(into...); err != nil {
			return fmt.Errorf("table %s: %w", table, err)
		}
		w := make(row, len(names))
		for i, name := range names {
			w[name] = values[i].String
		}
		use(w)
	}
	return rows.Err()
}

func (r *reader) groups(out *Database) error {
	return r.each(tableGroup, "ORDER BY id", []string{"id", "app_name", "title", "name", "address_type", "address_list"}, func(w row) {
		out.Groups = append(out.Groups, Group{ID: w.number("id"), AppName: strings.TrimSpace(w["app_name"]), Title: first(w["title"], w["name"]),
			Manual: w.number("address_type") == 1, Addresses: list(w["address_list"])})
	})
}

func (r *reader) jobs(out *Database) error {
	columns := []string{"id", "job_group", "job_cron", "job_desc", "name", "author", "alarm_email", "schedule_type", "schedule_conf", "misfire_strategy",
		"executor_route_strategy", "executor_handler", "executor_param", "executor_block_strategy", "executor_timeout", "executor_fail_retry_count",
		"glue_type", "glue_source", "glue_remark", "glue_updatetime", "child_jobid", "trigger_status", "trigger_last_time", "trigger_next_time"}
	return r.each(tableInfo, "ORDER BY id", columns, func(w row) {
		j := Job{ID: w.number("id"), Group: w.number("job_group"), Description: first(w["job_desc"], w["name"]), Author: w["author"], AlarmEmail: w["alarm_email"],
			ScheduleType: w["schedule_type"], ScheduleConf: w["schedule_conf"], Misfire: w["misfire_strategy"],
			Route: w["executor_route_strategy"], Handler: w["executor_handler"], Param: w["executor_param"], Block: w["executor_block_strategy"],
			TimeoutSeconds: w.number("executor_timeout"), Retries: w.number("executor_fail_retry_count"),
			GlueType: w["glue_type"], GlueSource: w["glue_source"], GlueRemark: w["glue_remark"], GlueUpdated: w["glue_updatetime"], Children: w["child_jobid"],
			Enabled: w.number("trigger_status") == 1, LastTriggerMillis: w.number("trigger_last_time"), NextTriggerMillis: w.number("trigger_next_time"),
			HasMisfire: r.t.has(tableInfo, "misfire_strategy")}
		if !r.t.has(tableInfo, "schedule_type") {
			j.ScheduleType, j.ScheduleConf = "CRON", w["job_cron"]
		}
		out.Jobs = append(out.Jobs, j)
	})
}

func (r *reader) users(out *Database) error {
	if r.t.columns[tableUser] == nil {
		return nil
	}
	return r.each(tableUser, "ORDER BY id", []string{"username", "role", "permission"}, func(w row) {
		u := User{Name: strings.TrimSpace(w["username"]), Admin: w.number("role") == 1}
		for _, text := range list(w["permission"]) {
			if id, err := strconv.ParseInt(text, 10, 64); err == nil {
				u.Groups = append(u.Groups, id)
			}
		}
		out.Users = append(out.Users, u)
	})
}

// logs reads the newest rows by the primary key, because the table can be very large and may have no other index.
func (r *reader) logs(out *Database) error {
	if !r.t.has(tableLog, "trigger_time") || !r.t.has(tableLog, "job_id") {
		return nil
	}
	return r.each(tableLog, fmt.Sprintf("ORDER BY id DESC LIMIT %d", mostLogRows), []string{"job_id", "trigger_time"}, func(w row) {
		if at, err := time.Parse(time.DateTime, shortened(w["trigger_time"])); err == nil {
			out.Logs = append(out.Logs, Log{Job: w.number("job_id"), Time: at})
		}
	})
}

// shortened cuts fractions of a second from a local time.
func shortened(text string) string { return text[:min(len(text), len(time.DateTime))] }

func first(texts ...string) string {
	for _, t := range texts {
		if t = strings.TrimSpace(t); t != "" {
			return t
		}
	}
	return ""
}

func list(text string) (items []string) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
