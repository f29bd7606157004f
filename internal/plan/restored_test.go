package plan

import (
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
)

func restoredTo(from, to int) domain.Disturbance {
	return domain.Disturbance{Kind: domain.Restored, From: noon.Add(time.Duration(from) * time.Second), To: noon.Add(time.Duration(to) * time.Second)}
}

// All fire times up to the restore go to the ledger, also those of planned runs and with fire_all, and none after it.
func TestRestored(t *testing.T) {
	j := Job{ID: 1, Schedule: everySecond(t), Misfire: domain.MisfireFireAll, NextFire: noon.Add(4 * time.Second), Decided: noon.Add(3 * time.Second)}
	for i := range 2 {
		f := noon.Add(time.Duration(i+2) * time.Second)
		j.Stranded = append(j.Stranded, Stranded{domain.ScheduledRunID(1, f, 0), f})
	}
	d, more := Restored(j, restoredTo(1, 60), noon.Add(90*time.Second))
	if more || len(d.Runs)+len(d.Revive) > 0 || len(d.Drop) != 2 {
		t.Errorf("%+v", d)
	}
	if m := d.Missed; m == nil || m.Count != 59 || !m.First.Equal(noon.Add(2*time.Second)) || !m.Last.Equal(noon.Add(time.Minute)) || m.Why.Code != explain.Restored {
		t.Fatalf("the ledger gets %+v", m)
	}
	if !d.DecidedThrough.Equal(d.Missed.Last.Time) || !d.NextFire.Equal(noon.Add(61*time.Second)) || !d.NextDue.Equal(d.NextFire) {
		t.Errorf("planning continues with %s after %s", d.NextFire, d.DecidedThrough)
	}
}

func TestRestoredNothingDue(t *testing.T) {
	j := Job{ID: 1, Schedule: everySecond(t), NextFire: noon.Add(61 * time.Second), Decided: noon}
	if d, more := Restored(j, restoredTo(0, 60), noon.Add(60*time.Second)); more || d.Missed != nil || !d.NextFire.Equal(j.NextFire) || !d.DecidedThrough.Equal(j.Decided) {
		t.Errorf("%+v", d)
	}
}

// A job with very many uncertain fire times is decided in parts, without a gap between them.
func TestRestoredInParts(t *testing.T) {
	j := Job{ID: 1, Schedule: everySecond(t), NextFire: noon.Add(time.Second)}
	to, last, total := restoredTo(0, 2*scanMax+5), noon, 0
	for more := true; more; {
		var d Decision
		d, more = Restored(j, to, to.To)
		if !d.Missed.First.Equal(last.Add(time.Second)) {
			t.Fatalf("a part begins at %s after %s", d.Missed.First, last)
		}
		last, total = d.Missed.Last.Time, total+d.Missed.Count
		j.NextFire, j.Decided = d.NextFire, d.DecidedThrough
	}
	if total != 2*scanMax+5 || !last.Equal(to.To) {
		t.Errorf("%d fire times up to %s", total, last)
	}
}

// If the run of a fixed_delay job is dropped, the chain continues.
func TestRestoredChain(t *testing.T) {
	s := compile(t, domain.Schedule{Kind: domain.ScheduleFixedDelay, Delay: domain.Duration(10 * time.Second)})
	now := noon.Add(time.Minute)
	for name, j := range map[string]Job{
		"undecided": {ID: 1, Schedule: s, NextFire: noon.Add(5 * time.Second)},
		"planned":   {ID: 1, Schedule: s, Stranded: []Stranded{{domain.ScheduledRunID(1, noon, 0), noon}}},
	} {
		if d, _ := Restored(j, restoredTo(0, 60), now); d.Missed == nil || d.Missed.Count != 1 || !d.NextFire.Equal(now.Add(10*time.Second)) {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
