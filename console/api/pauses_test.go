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
