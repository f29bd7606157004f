package dispatcher

import (
	"testing"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// keep makes a record of the instance's boot in Postgres, as a gateway does.
func (p *puppet) keep() {
	p.w.t.Helper()
	p.w.exec(`INSERT INTO gateway_groups (group_name, app_name, networks, capacity) VALUES ($1, $1, '{}', 1) ON CONFLICT DO NOTHING`, p.group)
	p.w.exec(`INSERT INTO gateway_addresses (group_name, instance, url, boot_id, owner, epoch, lease_until, created_at, registered_at, source, kind, agent)
		VALUES ($1, $2, 'http://x', $3, 'o', 1, now(), now(), now(), '', 'java', '')`, p.group, p.name, p.boot)
}

// Attempts of a boot with a record in Postgres are not judged, also if its heartbeats have ended. They are judged when the record is deleted.
func TestKeptBoot(t *testing.T) {
	w := newWorld(t, option{})
	kept, other := w.join("kept"), w.join("other")
	kept.keep()
	last := func(s *domain.JobSpec) { s.Route = domain.RouteLast }
	ofOther := w.trigger(w.job("on other", last))
	other.got(ofOther, 1)
	w.becomes(ofOther, "running")
	other.die()
	ofKept := w.trigger(w.job("on kept"))
	kept.got(ofKept, 1)
	w.becomes(ofKept, "running")
	w.becomes(ofOther, "failed/lost")
	kept.die()
	third := w.join("third")
	ofThird := w.trigger(w.job("on third"))
	third.got(ofThird, 1)
	w.becomes(ofThird, "running")
	third.die()
	w.becomes(ofThird, "failed/lost") // it has died later than the kept one
	if r := w.run(ofKept); r.State != "running" {
		t.Errorf("the run of the kept boot is %s", r.State)
	}
	w.exec(`DELETE FROM gateway_addresses`)
	w.becomes(ofKept, "failed/lost")
}

// Only a result of an attempt that a gateway has sent may say that the attempt is lost.
func TestClaimsLost(t *testing.T) {
	w := newWorld(t, option{})
	a := w.join("a")
	lost := func(r *wire.Result) { r.Reason, r.Permanent, r.Message = "lost", true, "gone" }
	retried := func(s *domain.JobSpec) { s.Retries = 3 }
	claimed, believed := w.trigger(w.job("claimed")), w.trigger(w.job("believed", retried))
	w.exec(`INSERT INTO gateway_sends (group_name, instance, boot_id, run_id, attempt, bind, wire_id, handler, state, sent_at)
		VALUES ('g', 'a', $1, $2, 1, 1, 1, 'echo', 'lost', now())`, a.boot, believed.String())
	a.report(a.got(claimed, 1), wire.Failed, lost)
	w.becomes(claimed, "failed/handler_error")
	a.report(a.got(believed, 1), wire.Failed, lost)
	w.eventually("the run is failed", func() bool { return w.run(believed).State == "failed" })
	if r := w.run(believed); r.Reason != "lost" || r.Message != "gone" || r.Attempt != 1 {
		t.Errorf("the run: %+v", r)
	}
}
