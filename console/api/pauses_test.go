package api_test

import (
	"slices"
	"strings"
	"testing"
)

func TestPauseAndResumeAGroup(t *testing.T) {
	w := newWorld(t)
	job := w.job(`{"group":"default","name":"tick","handler":"echo","schedule":{"kind":"fixed_rate","every":"1h"}}`)
	g := w.must(200, "POST", "/api/v1/groups/default/pause", `{"reason":"new disks","until":"2099-01-01T00:00:00Z"}`)
	if g.field("pause_reason") != "new disks" || g.field("paused_by") != "admin" || g.field("paused_until") != "2099-01-01T00:00:00.000Z" || g.field("paused_at") == nil {
		t.Errorf("%s", g.body)
	}
	for _, list := range []string{"/api/v1/groups", "/api/v1/jobs"} {
		if a := w.must(200, "GET", list, ""); !strings.Contains(a.body, "new disks") {
			t.Errorf("%s does not show the pause: %s", list, a.body)
		}
	}
	if a := w.must(200, "GET", job, ""); a.field("next_fire_time") != nil || !strings.Contains(a.field("note").(string), "its group default is paused from") {
		t.Errorf("the job is %s", a.body)
	}
	w.must(202, "POST", job+"/trigger", `{}`)
	w.must(200, "POST", "/api/v1/groups/default/pause", `{"reason":"more disks"}`)
	if a := w.must(200, "GET", "/api/v1/groups/default", ""); a.field("pause_reason") != "more disks" || a.field("paused_until") != nil {
		t.Errorf("%s", a.body)
	}
	if a := w.must(200, "POST", "/api/v1/groups/default/resume", ""); a.field("paused_at") != nil {
		t.Errorf("%s", a.body)
	}
	if a := w.must(200, "GET", job, ""); a.field("next_fire_time") == nil {
		t.Errorf("the job is %s", a.body)
	}
	w.must(409, "POST", "/api/v1/groups/default/resume", "")
	changes := w.must(200, "GET", "/api/v1/audit?object=group/default", "")
	if changes.field("items.0.action") != "group.resume" || changes.field("items.1.action") != "group.pause" || changes.field("items.1.after.pause_reason") != "more disks" {
		t.Errorf("%s", changes.body)
	}
	for name, c := range map[string]struct {
		body      string
		locations []string
	}{
		"no reason":     {`{}`, []string{"reason"}},
		"a blank":       {`{"reason":"  "}`, []string{"reason"}},
		"too long":      {`{"reason":"` + strings.Repeat("x", 1025) + `"}`, []string{"reason"}},
		"in the past":   {`{"reason":"x","until":"2001-01-01T00:00:00Z"}`, []string{"until"}},
		"many at once":  {`{"reason":5,"until":"soon","since":1}`, []string{"reason", "until", "since"}},
		"unknown field": {`{"reason":"x","til":"2099-01-01T00:00:00Z"}`, []string{"til"}},
	} {
		a := w.must(422, "POST", "/api/v1/groups/default/pause", c.body)
		got := a.locations()
		slices.Sort(got)
		slices.Sort(c.locations)
		if !slices.Equal(slices.Compact(got), c.locations) {
			t.Errorf("%s: %v, want %v: %s", name, got, c.locations, a.body)
		}
	}
	w.must(404, "POST", "/api/v1/groups/nowhere/pause", `{"reason":"x"}`)
	w.must(404, "POST", "/api/v1/groups/nowhere/resume", "")
}

// A new group is not paused if a deleted group of the same name was paused.
func TestAPauseEndsWithItsGroup(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		w.must(201, "POST", "/api/v1/groups", `{"name":"short-lived"}`)
		if a := w.must(200, "GET", "/api/v1/groups/short-lived", ""); a.field("paused_at") != nil {
			t.Errorf("%s", a.body)
		}
		w.must(200, "POST", "/api/v1/groups/short-lived/pause", `{"reason":"x"}`)
		w.must(204, "DELETE", "/api/v1/groups/short-lived", "")
	}
}

// Only operators of a group may pause it. For operators of other groups it does not exist.
func TestWhoMayPause(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"other"}`)
	for name, role := range map[string]string{"op": "operator", "viewer": "viewer"} {
		w.must(201, "POST", "/api/v1/users", `{"username":"`+name+`","password":"`+adminPassword+`","role":"`+role+`","groups":["default"]}`)
	}
	op, viewer := w.logIn("op", adminPassword), w.logIn("viewer", adminPassword)
	const body = `{"reason":"x"}`
	for _, c := range []struct {
		token, path string
		status      int
	}{
		{viewer, "/api/v1/groups/default/pause", 403}, {viewer, "/api/v1/groups/default/resume", 403},
		{op, "/api/v1/groups/other/pause", 404}, {op, "/api/v1/groups/other/resume", 404},
		{op, "/api/v1/groups/default/pause", 200}, {op, "/api/v1/groups/default/resume", 200},
	} {
		if a := w.do(c.token, "POST", c.path, body); a.status != c.status {
			t.Errorf("%s: %d, want %d: %s", c.path, a.status, c.status, a.body)
		}
	}
}

// A job can be paused apart from its group. Its pause is shown with it, and its note names both pauses.
func TestPauseAndResumeAJob(t *testing.T) {
	w := newWorld(t)
	job := w.job(`{"group":"default","name":"tick","handler":"echo","schedule":{"kind":"fixed_rate","every":"1h"}}`)
	other := w.job(`{"group":"default","name":"tock","handler":"echo","schedule":{"kind":"fixed_rate","every":"1h"}}`)
	j := w.must(200, "POST", job+"/pause", `{"reason":"new disks","until":"2099-01-01T00:00:00Z"}`)
	if j.field("pause_reason") != "new disks" || j.field("paused_by") != "admin" || j.field("paused_until") != "2099-01-01T00:00:00.000Z" || j.field("paused_at") == nil ||
		j.field("next_fire_time") != nil || !strings.HasPrefix(j.field("note").(string), "the job is paused from") {
		t.Errorf("%s", j.body)
	}
	w.must(202, "POST", job+"/trigger", `{}`)
	w.must(200, "POST", job+"/pause", `{"reason":"more disks"}`)
	w.must(200, "POST", "/api/v1/groups/default/pause", `{"reason":"a move"}`)
	list := w.must(200, "GET", "/api/v1/jobs", "")
	note, _ := list.field("items.0.note").(string)
	if list.field("items.0.pause_reason") != "more disks" || list.field("items.0.paused_until") != nil || list.field("items.1.paused_at") != nil ||
		!strings.HasPrefix(note, "its group default has been paused since ") || !strings.Contains(note, "(a move); the job has been paused since ") {
		t.Errorf("%s", list.body)
	}
	w.must(200, "POST", "/api/v1/groups/default/resume", "")
	if a := w.must(200, "GET", "/api/v1/upcoming?within=24h", ""); strings.Contains(a.body, `"tick"`) || !strings.Contains(a.body, `"tock"`) {
		t.Errorf("upcoming: %s", a.body)
	}
	if a := w.must(200, "GET", other, ""); a.field("next_fire_time") == nil {
		t.Errorf("the other job is %s", a.body)
	}
	edited := w.must(200, "PATCH", job, `{"param":"new"}`)
	if edited.field("pause_reason") != "more disks" || edited.field("next_fire_time") != nil {
		t.Errorf("after an edit: %s", edited.body)
	}
	if a := w.must(200, "POST", job+"/resume", ""); a.field("paused_at") != nil || a.field("pause_reason") != "" || a.field("next_fire_time") == nil {
		t.Errorf("%s", a.body)
	}
	w.must(409, "POST", job+"/resume", "")
	changes := w.must(200, "GET", "/api/v1/audit?object=job/1", "")
	if changes.field("items.0.action") != "job.resume" || changes.field("items.2.action") != "job.pause" || changes.field("items.2.after.pause_reason") != "more disks" {
		t.Errorf("%s", changes.body)
	}
	for body, location := range map[string]string{`{}`: "reason", `{"reason":"x","until":"2001-01-01T00:00:00Z"}`: "until", `{"reason":"x","til":1}`: "til"} {
		if a := w.must(422, "POST", job+"/pause", body); !slices.Equal(a.locations(), []string{location}) {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	w.must(404, "POST", "/api/v1/jobs/4711/pause", `{"reason":"x"}`)
	w.must(404, "POST", "/api/v1/jobs/4711/resume", "")
}
