package api_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/belfryhq/belfry/console/api/system"
)

func TestSystemInfo(t *testing.T) {
	w := newWorld(t)
	w.ready["nats"] = errors.New("no answer")
	a := w.must(200, "GET", "/api/v1/system", "")
	for path, want := range map[string]any{
		"checks.0.name": "postgres", "checks.0.ok": true, "checks.1.name": "nats", "checks.1.ok": false, "checks.1.detail": "no answer",
		"executors.url": "tls://nats.example.com:4222", "executors.tls": true,
		"unfired": 0.0, "unfired_due_at": nil, "scheduler_seen_at": nil,
	} {
		if got := a.field(path); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}

func TestExecutorsAt(t *testing.T) {
	for url, want := range map[string]system.Executors{
		"":                            {},
		"[redacted]":                  {},
		"nats://10.0.0.7:4222":        {URL: "nats://10.0.0.7:4222"},
		"tls://a:4222,tls://b:4222":   {URL: "tls://a:4222,tls://b:4222", TLS: true},
		"wss://nats.example.com/path": {URL: "wss://nats.example.com/path", TLS: true},
	} {
		if got := system.ExecutorsAt(url); got != want {
			t.Errorf("%q: %+v, want %+v", url, got, want)
		}
	}
}
