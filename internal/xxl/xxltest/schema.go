package xxltest

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Row is a row of a table by column.
type Row map[string]any

// Database is the content of a database.
type Database struct {
	Version string           `json:"version"`
	Tables  map[string][]Row `json:"tables"`
}

// Fixture reads the fixture of a version.
func Fixture(t *testing.T, version string) Database {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(file), "testdata", version+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var d Database
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatalf("%s.json: %v", version, err)
	}
	return d
}

// at reports whether a version is at least another.
func at(version, least string) bool {
	a, b := numbers(version), numbers(least)
	return slices.Compare(a[:], b[:]) >= 0
}

// numbers returns the major and minor number of a version.
func numbers(version string) (n [2]int) {
	if _, err := fmt.Sscanf(version, "%d.%d", &n[0], &n[1]); err != nil {
		panic(fmt.Sprintf("version %q: %v", version, err))
	}
	return n
}

// tables returns the definitions of a version: columns with their types, in MariaDB's spelling.
func tables(version string) map[string][]string {
	group := []string{"id int NOT NULL PRIMARY KEY", "app_name varchar(64) NOT NULL", "title varchar(64)", "address_type tinyint NOT NULL DEFAULT 0"}
	info := []string{"id int NOT NULL PRIMARY KEY", "job_group int NOT NULL", "job_desc varchar(255) NOT NULL", "add_time datetime", "update_time datetime", "author varchar(64)", "alarm_email varchar(255)",
		"executor_route_strategy varchar(50)", "executor_handler varchar(255)", "executor_block_strategy varchar(50)", "executor_timeout int NOT NULL DEFAULT 0",
		"executor_fail_retry_count int NOT NULL DEFAULT 0", "glue_type varchar(50) NOT NULL", "glue_source mediumtext", "glue_remark varchar(128)", "glue_updatetime datetime", "child_jobid varchar(255)",
		"trigger_status tinyint NOT NULL DEFAULT 0", "trigger_last_time bigint NOT NULL DEFAULT 0", "trigger_next_time bigint NOT NULL DEFAULT 0"}
	user := []string{"id int NOT NULL PRIMARY KEY", "username varchar(50) NOT NULL", "password varchar(100) NOT NULL", "role tinyint NOT NULL", "permission varchar(255)"}
	log := []string{"id bigint NOT NULL PRIMARY KEY", "job_group int NOT NULL", "job_id int NOT NULL", "trigger_time datetime", "trigger_code int NOT NULL DEFAULT 0"}
	if at(version, "2.3") {
		info = append(info, "schedule_type varchar(50) NOT NULL DEFAULT 'NONE'", "schedule_conf varchar(128)", "misfire_strategy varchar(50) NOT NULL DEFAULT 'DO_NOTHING'")
		group = append(group, "address_list text", "update_time datetime")
	} else {
		info = append(info, "job_cron varchar(128) NOT NULL")
		group = append(group, "address_list varchar(512)")
	}
	if at(version, "3.4") {
		info = append(info, "executor_param text")
	} else {
		info = append(info, "executor_param varchar(512)")
	}
	if at(version, "3.2") {
		user = append(user, "token varchar(100)")
	}
	return map[string][]string{"xxl_job_group": group, "xxl_job_info": info, "xxl_job_user": user, "xxl_job_log": log}
}

// Fill creates the tables of the database's version and inserts its rows. engine is mysql or postgres.
func Fill(t *testing.T, db *sql.DB, engine string, d Database) {
	t.Helper()
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
			t.Fatalf("%s: %v", query[:min(len(query), 300)], err)
		}
	}
	definitions := tables(d.Version)
	for table, columns := range definitions {
		text := strings.Join(columns, ", ")
		if engine == "postgres" {
			text = strings.NewReplacer(" tinyint", " smallint", " datetime", " timestamp", " mediumtext", " text").Replace(text)
		}
		exec("CREATE TABLE " + table + " (" + text + ")")
	}
	if at(d.Version, "2.5") {
		exec("CREATE INDEX idx_job_id ON xxl_job_log (job_id)")
	}
	for table, rows := range d.Tables {
		for _, row := range rows {
			columns := slices.Sorted(maps.Keys(row))
			columns = slices.DeleteFunc(columns, func(c string) bool {
				return !slices.ContainsFunc(definitions[table], func(definition string) bool { return strings.HasPrefix(definition, c+" ") })
			})
			var marks []string
			var args []any
			for i, c := range columns {
				mark := "?"
				if engine == "postgres" {
					mark = fmt.Sprintf("$%d", i+1)
				}
				v := row[c]
				if f, ok := v.(float64); ok {
					v = int64(f)
				}
				marks, args = append(marks, mark), append(args, v)
			}
			exec("INSERT INTO "+table+" ("+strings.Join(columns, ", ")+") VALUES ("+strings.Join(marks, ", ")+")", args...)
		}
	}
}
