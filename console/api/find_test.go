package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
)

func TestSearchAndTags(t *testing.T) {
	w := newWorld(t)
	w.must(201, "POST", "/api/v1/groups", `{"name":"billing-eu"}`)
	w.job(`{"group":"default","name":"Nightly report","handler":"echo","tags":["prod","team-a"],"schedule":{"kind":"none"}}`)
	w.job(`{"group":"billing-eu","name":"nightly backup","handler":"echo","tags":["prod"],"schedule":{"kind":"none"}}`)
	w.job(`{"group":"billing-eu","name":"数据库备份","handler":"echo","schedule":{"kind":"none"}}`)
	w.fleet.others = []domain.Instance{{ID: "node-1", Group: "default"}, {ID: "Node-2", Group: "billing-eu"}}
	viewer := w.confined("vera", "viewer", "default")
	for _, c := range []struct{ token, path, want string }{
		{w.admin, "/search?q=nigh", `{"groups":[],"jobs":[{"id":1,"group":"default","name":"Nightly report"},{"id":2,"group":"billing-eu","name":"nightly backup"}],"tags":[],"instances":[]}`},
		{viewer, "/search?q=nigh", `{"groups":[],"jobs":[{"id":1,"group":"default","name":"Nightly report"}],"tags":[],"instances":[]}`},
		{w.admin, "/search?q=nigh&limit=1", `{"groups":[],"jobs":[{"id":1,"group":"default","name":"Nightly report"}],"tags":[],"instances":[]}`},
		{w.admin, "/search?q=bill", `{"groups":["billing-eu"],"jobs":[{"id":2,"group":"billing-eu","name":"nightly backup"},{"id":3,"group":"billing-eu","name":"数据库备份"}],"tags":[],"instances":[]}`},
		{viewer, "/search?q=bill", `{"groups":[],"jobs":[],"tags":[],"instances":[]}`},
		{w.admin, "/search?q=%E5%A4%87%E4%BB%BD", `{"groups":[],"jobs":[{"id":3,"group":"billing-eu","name":"数据库备份"}],"tags":[],"instances":[]}`},
		{w.admin, "/search?q=pro", `{"groups":[],"jobs":[],"tags":["prod"],"instances":[]}`},
		{w.admin, "/search?q=NODE", `{"groups":[],"jobs":[],"tags":[],"instances":[{"group":"billing-eu","instance":"Node-2"},{"group":"default","instance":"node-1"}]}`},
		{viewer, "/search?q=node", `{"groups":[],"jobs":[],"tags":[],"instances":[{"group":"default","instance":"node-1"}]}`},
		{w.admin, "/search?q=%20", `{"groups":[],"jobs":[],"tags":[],"instances":[]}`},
		{w.admin, "/tags", `{"items":[{"tag":"prod","jobs":2},{"tag":"team-a","jobs":1}]}`},
		{viewer, "/tags", `{"items":[{"tag":"prod","jobs":1},{"tag":"team-a","jobs":1}]}`},
		{w.admin, "/tags?q=te", `{"items":[{"tag":"team-a","jobs":1}]}`},
		{w.admin, "/tags?group=billing-eu", `{"items":[{"tag":"prod","jobs":1}]}`},
		{w.admin, "/tags?limit=1", `{"items":[{"tag":"prod","jobs":2}]}`},
	} {
		if a := w.do(c.token, "GET", "/api/v1"+c.path, ""); a.status != 200 || strings.TrimSpace(a.body) != c.want {
			t.Errorf("%s: %d %s, want %s", c.path, a.status, strings.TrimSpace(a.body), c.want)
		}
	}
	w.rows([]row{
		{"no text", "GET", "/api/v1/search", "", 422, map[string]any{"errors.0.location": "q"}, nil},
		{"too many", "GET", "/api/v1/search?q=a&limit=51", "", 422, map[string]any{"errors.0.location": "limit"}, nil},
		{"too many tags", "GET", "/api/v1/tags?limit=501", "", 422, map[string]any{"errors.0.location": "limit"}, nil},
		{"tags of no group", "GET", "/api/v1/tags?group=nowhere", "", 404, nil, nil},
	})
	if a := w.do(viewer, "GET", "/api/v1/tags?group=billing-eu", ""); a.status != 404 {
		t.Errorf("tags of a hidden group: %d %s", a.status, a.body)
	}
}

func TestHealthOfGroups(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b", "c"} {
		w.job(`{"group":"default","name":"` + name + `","handler":"echo","schedule":{"kind":"none"}}`)
	}
	w.must(200, "POST", "/api/v1/jobs/1/disable", "")
	w.must(200, "POST", "/api/v1/jobs/2/pause", `{"reason":"test"}`)
	w.fares(1, true, "timeout", "", time.Now(), 80)
	w.rows([]row{
		{"with health", "GET", "/api/v1/groups?health=true", "", 200, map[string]any{"items.0.name": "default", "items.0.health.jobs": 3.0, "items.0.health.disabled": 1.0,
			"items.0.health.failing": 1.0, "items.0.health.paused": 1.0}, nil},
		{"without", "GET", "/api/v1/groups", "", 200, map[string]any{"items.0.jobs": 3.0, "items.0.health": nil}, nil},
	})
	w.must(200, "POST", "/api/v1/jobs/2/resume", "")
	w.rows([]row{{"resumed", "GET", "/api/v1/groups?health=true", "", 200, map[string]any{"items.0.health.paused": 0.0}, nil}})
}
