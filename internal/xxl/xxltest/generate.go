package xxltest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/xxl/quartz"
	"github.com/belfryhq/belfry/internal/xxl/quartz/quartztest"
)

// Generate returns a database of n jobs of all kinds, as an admin has it that is at work at an instant: with the next trigger times that
// the release of Quartz computes in cronZone, and log rows in the local time of dbZone.
func Generate(t *testing.T, version string, release quartz.Version, n int, now time.Time, cronZone, dbZone string) Database {
	t.Helper()
	cron, err := time.LoadLocation(cronZone)
	if err != nil {
		t.Fatal(err)
	}
	local, err := time.LoadLocation(dbZone)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(uint64(n), 5))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	d := Database{Version: version, Tables: map[string][]Row{}}
	add := func(table string, row Row) { d.Tables[table] = append(d.Tables[table], row) }
	for g := 1; g <= 12; g++ {
		app := fmt.Sprintf("executor-%d", g)
		if g%4 == 0 {
			app = fmt.Sprintf("Executor.%d", g)
		}
		row := Row{"id": g, "app_name": app, "title": fmt.Sprintf("执行器 %d", g), "address_type": 0}
		if g%5 == 0 {
			row["address_type"], row["address_list"] = 1, "http://10.0.0.1:9999,http://10.0.0.2:9999"
		}
		add("xxl_job_group", row)
	}
	for id := 1; id <= n; id++ {
		row := Row{"id": id, "job_group": 1 + r.IntN(12), "job_desc": fmt.Sprintf("任务 %d", r.IntN(n)), "author": "ann", "alarm_email": pick("", "", "", "ops@example.com", "ops@example.com,dev@example.com"),
			"executor_route_strategy": pick("FIRST", "LAST", "ROUND", "RANDOM", "CONSISTENT_HASH", "LEAST_FREQUENTLY_USED", "LEAST_RECENTLY_USED", "FAILOVER", "BUSYOVER", "SHARDING_BROADCAST"),
			"executor_handler":        "demoJobHandler", "executor_param": pick("", "a=1", `{"k":"值"}`), "executor_block_strategy": pick("SERIAL_EXECUTION", "DISCARD_LATER", "COVER_EARLY"),
			"executor_timeout": r.IntN(3) * 30, "executor_fail_retry_count": r.IntN(4), "glue_type": "BEAN", "glue_remark": "", "child_jobid": "",
			"misfire_strategy": pick("DO_NOTHING", "FIRE_ONCE_NOW"), "schedule_type": "CRON", "schedule_conf": "", "trigger_status": r.IntN(2), "trigger_last_time": 0, "trigger_next_time": 0}
		if r.IntN(10) == 0 {
			row["glue_type"] = pick("GLUE_SHELL", "GLUE_PYTHON", "GLUE_PHP", "GLUE_NODEJS", "GLUE_POWERSHELL", "GLUE_GROOVY")
			row["executor_handler"], row["glue_source"], row["glue_remark"], row["glue_updatetime"] = "", "echo "+strings.Repeat("x", r.IntN(2000)), "第一版", "2025-05-05 05:05:05"
		}
		if r.IntN(8) == 0 {
			row["child_jobid"] = fmt.Sprintf("%d,%d", 1+r.IntN(n), 1+r.IntN(n+20))
		}
		enabled := row["trigger_status"] == 1
		switch r.IntN(10) {
		case 0:
			row["schedule_type"], row["trigger_status"] = "NONE", 0
		case 1:
			row["schedule_type"], row["schedule_conf"] = "FIX_RATE", fmt.Sprint(1+r.IntN(3600))
			if enabled {
				row["trigger_next_time"] = now.UnixMilli() + 1 + r.Int64N(3_600_000)
			}
		default:
			expr, next := draw(r, release, now, cron)
			row["schedule_conf"] = expr
			if enabled {
				row["trigger_next_time"] = next.UnixMilli()
				last := now.Add(-time.Duration(r.IntN(86400)) * time.Second)
				row["trigger_last_time"] = last.UnixMilli()
				add("xxl_job_log", Row{"id": id, "job_group": row["job_group"], "job_id": id, "trigger_time": last.In(local).Format(time.DateTime)})
			}
		}
		if !at(version, "2.3") {
			row["job_cron"] = row["schedule_conf"]
		}
		add("xxl_job_info", row)
	}
	add("xxl_job_user", Row{"id": 1, "username": "admin", "password": "x", "role": 1, "permission": ""})
	add("xxl_job_user", Row{"id": 2, "username": "Bob", "password": "x", "role": 0, "permission": "1,3,99"})
	add("xxl_job_user", Row{"id": 3, "username": "carol", "password": "x", "role": 0, "permission": ""})
	return d
}

// draw returns an expression that Quartz accepts and that fires.
func draw(r *rand.Rand, release quartz.Version, now time.Time, zone *time.Location) (string, time.Time) {
	for {
		expr := quartztest.Draw(r)
		if r.IntN(3) > 0 { // most jobs of real users
			expr = fmt.Sprintf("%d %d %d * * ?", r.IntN(60), r.IntN(60), r.IntN(24))
		}
		e, err := quartz.Parse(expr, release, now.Year())
		if err != nil {
			continue
		}
		if next, ok := e.Next(now.Add(7*time.Second), zone); ok {
			return expr, next
		}
	}
}
