package source

import (
	"fmt"
	"strings"
	"time"
)

// Database is what an XXL-JOB database holds.
type Database struct {
	Engine  string // mysql or postgres
	Name    string // host:port/database, without user and password
	Version Version
	ReadAt  time.Time // the database's clock
	Groups  []Group
	Jobs    []Job
	Users   []User
	Logs    []Log // of the newest triggers, newest first
}

// Version is the range of XXL-JOB's versions that have these tables.
type Version struct{ From, To string }

func (v Version) String() string {
	if v.From == v.To {
		return v.From
	}
	return v.From + " to " + v.To
}

// Group is an executor: a row of xxl_job_group.
type Group struct {
	ID        int64
	AppName   string
	Title     string
	Manual    bool // the addresses are entered by hand
	Addresses []string
}

// Job is a row of xxl_job_info. Texts are as XXL-JOB stores them.
type Job struct {
	ID, Group                            int64
	Description, Author, AlarmEmail      string
	ScheduleType, ScheduleConf, Misfire  string
	Route, Handler, Param, Block         string
	TimeoutSeconds, Retries              int64
	GlueType, GlueSource, GlueRemark     string
	GlueUpdated                          string // local time in the database's zone
	Children                             string
	Enabled                              bool
	LastTriggerMillis, NextTriggerMillis int64
	HasMisfire                           bool // the table has the column
}

// NextTrigger returns when XXL-JOB fires the job next, or false if it does not.
func (j *Job) NextTrigger() (time.Time, bool) {
	return time.UnixMilli(j.NextTriggerMillis).UTC(), j.Enabled && j.NextTriggerMillis > 0
}

// User is a row of xxl_job_user, without the password.
type User struct {
	Name   string
	Admin  bool
	Groups []int64 // ids of groups that an ordinary user may manage
}

// Log is the trigger time of a row of xxl_job_log: a local time in the database's zone, read as if it were UTC.
type Log struct {
	Job  int64
	Time time.Time
}

// The tables. xxl_job_log is optional.
const (
	tableGroup = "xxl_job_group"
	tableInfo  = "xxl_job_info"
	tableUser  = "xxl_job_user"
	tableLog   = "xxl_job_log"
)

// tables holds the columns by table and lower-case name, with their types.
type tables struct {
	columns    map[string]map[string]column
	logIndexed bool // xxl_job_log has an index on job_id
}

type column struct {
	name string // as the database spells it
	kind string // lower case
}

func (t *tables) has(table, name string) bool {
	_, ok := t.columns[table][name]
	return ok
}

// version tells from the columns which versions of XXL-JOB have these tables.
func (t *tables) version() Version {
	param := t.columns[tableInfo]["executor_param"].kind
	switch {
	case t.has(tableInfo, "job_cron") && !t.has(tableInfo, "schedule_type"):
		return Version{"2.1", "2.2"}
	case t.has(tableGroup, "access_token") || t.has(tableInfo, "name"):
		return Version{"3.5", "3.5"}
	case strings.Contains(param, "text") && t.has(tableUser, "token"):
		return Version{"3.4", "3.4"}
	case t.has(tableUser, "token"):
		return Version{"3.2", "3.3"}
	case t.logIndexed:
		return Version{"2.5", "3.1"}
	}
	return Version{"2.3", "2.4"}
}

// check returns an error if the tables are not those of XXL-JOB.
func (t *tables) check(database string) error {
	for _, need := range []struct {
		table   string
		columns []string
	}{
		{tableGroup, []string{"id", "app_name"}},
		{tableInfo, []string{"id", "job_group", "executor_handler", "trigger_status", "trigger_next_time"}},
	} {
		if t.columns[need.table] == nil {
			return fmt.Errorf("%s has no table %s; name the database of XXL-JOB in --dsn", database, need.table)
		}
		for _, c := range need.columns {
			if !t.has(need.table, c) {
				return fmt.Errorf("table %s of %s has no column %s; versions before 2.1 are not supported", need.table, database, c)
			}
		}
	}
	return nil
}
