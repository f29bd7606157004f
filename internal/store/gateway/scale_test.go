package gateway_test

import (
	"testing"

	"github.com/belfryhq/belfry/internal/store/gateway"
)

// With many settled sends, no statement reads the whole table.
func TestStatementsScale(t *testing.T) {
	w := newWorld(t, 1) // a connection keeps its counters until it flushes them
	a := w.register("one", "g", "a", "10.0.0.1")
	w.exec(`ALTER TABLE gateway_sends SET (autovacuum_enabled = false)`)
	w.exec(`INSERT INTO gateway_sends (group_name, instance, boot_id, run_id, attempt, bind, wire_id, handler, state, ended_at, forget_at)
		SELECT 'g', 'a', 'boot-a', gen_random_uuid(), 1, 1, 1, 'demo', 'ended', now(), now() + interval '10 min' FROM generate_series(1, 50000)`)
	read := func() (rows int64) {
		t.Helper()
		w.exec(`SELECT pg_stat_force_next_flush()`)
		if err := w.pool.QueryRow(t.Context(), `SELECT seq_tup_read FROM pg_stat_user_tables WHERE schemaname = 'belfry' AND relname = 'gateway_sends'`).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	before := read()
	w.exec(`SELECT count(*) FROM gateway_sends WHERE message <> ''`)
	if read() == before {
		t.Fatal("the counter does not change, so this test cannot fail")
	}
	check := func(what string, call func() error) {
		t.Helper()
		before := read()
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := read() - before; n > 0 {
			t.Errorf("%s read %d rows one after the other", what, n)
		}
	}
	for _, statistics := range []string{"of an empty table", "that are true"} {
		if statistics == "that are true" {
			w.exec(`ANALYZE`)
			w.exec(`DISCARD PLANS`)
		}
		t.Log("statistics " + statistics)
		for range 6 { // after five executions, Postgres considers a generic plan
			o := offers(50)
			var ids []int64
			var attempts []gateway.Attempt
			var settled []gateway.SettledAttempt
			var answers []gateway.Answer
			var ends []gateway.End
			check("Accept", func() error { ids = w.accept("one", a.Hold(), o); return nil })
			for i, id := range ids {
				attempts, settled = append(attempts, o[i].Attempt), append(settled, gateway.SettledAttempt{Attempt: o[i].Attempt, BootID: "boot-a"})
				answers, ends = append(answers, gateway.Answer{LogID: id, State: gateway.Taken}), append(ends, gateway.End{LogID: id, Result: gateway.Result{Outcome: "succeeded"}})
			}
			check("Known", func() error { _, err := w.Known(t.Context(), attempts); return err })
			check("RaiseBinds", func() error { return w.RaiseBinds(t.Context(), o) })
			check("Send", func() error { w.send("one", a.Hold(), ids...); return nil })
			check("Answer", func() error { _, err := w.Answer(t.Context(), answers); return err })
			check("RequestKill", func() error { return w.RequestKill(t.Context(), ids, "killed") })
			check("Outstanding", func() error { _, err := w.Outstanding(t.Context(), &a, 0, 100); return err })
			check("Finish", func() error { _, err := w.Finish(t.Context(), []string{"g"}, ends); return err })
			check("Results", func() error { _, err := w.Results(t.Context(), ids); return err })
			check("Settle", func() error { _, err := w.Settle(t.Context(), settled); return err })
			check("Sweep", func() error { _, _, err := w.Sweep(t.Context(), 0, 100); return err })
			check("Remove", func() error { _, err := w.Remove(t.Context(), "other", a.Hold()); return err })
			w.expire()
			check("TakeOver", func() error {
				taken, err := w.TakeOver(t.Context(), "one", 10, lease)
				a = taken[0]
				return err
			})
		}
	}
}
