package api_test

import (
	"errors"
	"reflect"
	"testing"
)

func TestSystemInfo(t *testing.T) {
	w := newWorld(t)
	w.ready["nats"] = errors.New("no answer")
	a := w.must(200, "GET", "/api/v1/system", "")
	for path, want := range map[string]any{
		"checks.0.name": "postgres", "checks.0.ok": true, "checks.1.name": "nats", "checks.1.ok": false, "checks.1.detail": "no answer",
		"unfired": 0.0, "unfired_due_at": nil, "scheduler_seen_at": nil,
	} {
		if got := a.field(path); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}
