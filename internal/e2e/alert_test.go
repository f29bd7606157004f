//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
)

// When a job begins to fail, Belfry sends one signed webhook, and another one when the job succeeds again.
func TestAlerts(t *testing.T) {
	t.Parallel()
	const secret = "a secret of sixteen bytes and more"
	var mu sync.Mutex
	var received []alert.Message
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if got, want := r.Header.Get("Belfry-Signature"), alert.Sign(secret, r.Header.Get("Belfry-Timestamp"), body); got != want {
			t.Errorf("the signature is %q, want %q", got, want)
		}
		var m alert.Message
		if err := json.Unmarshal(body, &m); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		received = append(received, m)
	}))
	t.Cleanup(hook.Close)
	kinds := func() (kinds []domain.AlertKind) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range received {
			kinds = append(kinds, m.Kind)
		}
		return kinds
	}
	var well atomic.Bool
	work := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !well.Load() {
			http.Error(w, "out of paper", http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(work.Close)

	p := standalone(t, filepath.Join(t.TempDir(), "data"), []string{"BELFRY_ADMIN_PASSWORD=" + adminPassword}, "--demo")
	server := p.says("console: ")
	api, _ := logIn(t, server, adminPassword)
	p.says("nats: ")
	if _, err := api.CreateAlertChannel(t.Context(), map[string]any{"name": "ops", "kind": "webhook", "url": hook.URL, "secret": secret}); err != nil {
		t.Fatal(err)
	}
	if came, err := api.TestAlertChannel(t.Context(), "ops"); err != nil || !came.Delivered {
		t.Fatalf("the test: %+v, %v", came, err)
	}
	spec := domain.DefaultJobSpec()
	spec.Group, spec.Name, spec.Handler, spec.Param = "demo", "printer", "http", fmt.Sprintf(`{"url": %q}`, work.URL)
	spec.Schedule = domain.Schedule{Kind: domain.ScheduleNone}
	spec.Alert = domain.Alert{Channels: []string{"ops"}, On: []domain.AlertKind{domain.AlertFailed, domain.AlertRecovered}}
	job, err := api.CreateJob(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	ends := func(state domain.State) domain.RunID {
		t.Helper()
		ids, err := api.TriggerJob(t.Context(), job.ID, client.Trigger{})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, patience, "the run ends", func() bool {
			r, err := api.Run(t.Context(), ids[0])
			return err == nil && r.State == state
		})
		return ids[0]
	}
	failed := ends(domain.Failed)
	ends(domain.Failed) // folded into the first alert
	// Deliveries run concurrently, so the alert of the recovery could arrive before the alert of the failure.
	eventually(t, patience, "the alert of the failure arrives", func() bool { return slices.Contains(kinds(), domain.AlertFailed) })
	well.Store(true)
	ends(domain.Succeeded)
	ends(domain.Succeeded)
	want := []domain.AlertKind{domain.AlertTest, domain.AlertFailed, domain.AlertRecovered}
	eventually(t, patience, "the alerts arrive", func() bool { return len(kinds()) >= len(want) })
	if got := kinds(); !slices.Equal(got, want) {
		t.Errorf("received alerts of the kinds %v", got)
	}
	if m := received[1]; m.RunID != failed.String() || m.URL != server+"/runs/"+m.RunID || !strings.Contains(m.Message, "503") || m.Count != 1 {
		t.Errorf("the failure: %+v", m)
	}
	if m := received[2]; m.Count != 2 {
		t.Errorf("the recovery: %+v", m)
	}
	eventually(t, patience, "the deliveries are recorded", func() bool {
		listed, err := api.Alerts(t.Context(), client.AlertFilter{JobID: job.ID, State: "delivered"}, 10)
		return err == nil && len(listed) == 2
	})
}
