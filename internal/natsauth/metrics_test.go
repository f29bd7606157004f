package natsauth

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/belfryhq/belfry/internal/domain"
)

// Each group gets its own warning, once in a while, and all refusals are counted by group and reason.
func TestRefusalsAreCountedByGroup(t *testing.T) {
	issuer, err := NewIssuer()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	r, err := New(Config{
		Verifier: verifierFunc(func(token string) (string, error) {
			if token == "x" {
				return "", domain.NewError(domain.Forbidden, "no such token")
			}
			return token, nil
		}),
		Issuer: issuer, Log: slog.New(slog.NewJSONHandler(&log, nil)), Registry: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"a", "b"} {
		r.gates.close(group, time.Now())
	}
	for range 3 {
		for _, token := range []string{"a", "b", "c", "x"} {
			data := request(t, func(c *jwt.AuthorizationRequestClaims) {
				c.ConnectOptions.Token, c.ConnectOptions.Name = token, token+".i1"
			})
			if _, err := r.answer(t.Context(), data, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for group, outcome := range map[string]string{"a": refusedInstances, "b": refusedInstances, "c": accepted, "": refusedToken} {
		if got := testutil.ToFloat64(r.logins.WithLabelValues(group, outcome)); got != 3 {
			t.Errorf("group %q, outcome %s: %v", group, outcome, got)
		}
		want := 1
		if outcome == accepted {
			want = 0
		}
		if got := strings.Count(log.String(), `"group":"`+group+`"`); got != want {
			t.Errorf("group %q has %d warnings, want %d:\n%s", group, got, want, log.String())
		}
	}
	if n, err := testutil.GatherAndCount(registry, "belfry_nats_logins_total"); err != nil || n != 4 {
		t.Errorf("%d series, %v", n, err)
	}
}
