package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/xxl/protocol"
)

// servesXXLJob starts the gateways of compose.yaml, and runs a job on an executor that registers at both and reports to the second one.
// It returns the addresses of their metrics.
func (w *world) servesXXLJob(admin *client.Client) (metrics []string) {
	w.t.Helper()
	const group, token = "legacy", "an-access-token"
	var gateways []string
	for _, service := range []string{"gateway-1", "gateway-2"} {
		p := w.role(service, map[string]string{"BELFRY_SPOOL_DIR": w.t.TempDir()})
		metrics = append(metrics, p.says("metrics: "))
		gateways = append(gateways, p.says("gateway: "))
	}
	if _, err := admin.CreateGroup(w.t.Context(), group, ""); err != nil {
		w.t.Fatal(err)
	}
	if _, err := admin.OpenXXLJob(w.t.Context(), group, client.OpenXXLJob{Token: token, Networks: []string{"127.0.0.0/8"}}); err != nil {
		w.t.Fatal(err)
	}
	executor := oldExecutor(w.t, gateways[1], token)
	eventually(w.t, "the executor of XXL-JOB is listed", func() bool {
		// Executors repeat their registration, because each gateway refuses it until it has seen that the group is open.
		for _, g := range gateways {
			if tell(g+"/api/registry", token, map[string]string{"registryGroup": "EXECUTOR", "registryKey": group, "registryValue": executor}) != nil {
				return false
			}
		}
		list, err := admin.Instances(w.t.Context(), group)
		return err == nil && slices.ContainsFunc(list, func(i domain.Instance) bool { return i.NotOffered == nil })
	})
	spec := domain.DefaultJobSpec()
	spec.Group, spec.Name, spec.Handler, spec.Param, spec.Schedule = group, "old", "demo", "ding", domain.Schedule{Kind: domain.ScheduleNone}
	job, err := admin.CreateJob(w.t.Context(), spec)
	if err != nil {
		w.t.Fatal(err)
	}
	ids, err := admin.TriggerJob(w.t.Context(), job.ID, client.Trigger{})
	if err != nil {
		w.t.Fatal(err)
	}
	eventually(w.t, "the run at the executor of XXL-JOB has succeeded", func() bool {
		r, err := admin.Run(w.t.Context(), ids[0])
		return err == nil && r.State == domain.Succeeded && r.Output == "demo ran with ding"
	})
	return metrics
}

// oldExecutor serves the protocol of XXL-JOB's executors as far as a run needs it, and returns its address. It reports the end of each run to a gateway.
func oldExecutor(t *testing.T, gateway, token string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var run struct {
			LogID   int64  `json:"logId"`
			LogTime int64  `json:"logDateTime"`
			Handler string `json:"executorHandler"`
			Param   string `json:"executorParams"`
		}
		err := json.NewDecoder(r.Body).Decode(&run)
		fmt.Fprint(w, `{"code":200,"msg":null,"content":null}`)
		if !strings.HasSuffix(r.URL.Path, "/run") {
			return
		}
		w.(http.Flusher).Flush()
		if err != nil || r.Header.Get(protocol.HeaderToken) != token {
			t.Errorf("the gateway sends a run with the access token %q: %v", r.Header.Get(protocol.HeaderToken), err)
			return
		}
		end := map[string]any{"logId": run.LogID, "logDateTim": run.LogTime, "handleCode": 200, "handleMsg": run.Handler + " ran with " + run.Param}
		if err := tell(gateway+"/api/callback", token, []any{end}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL + "/"
}

// tell sends a request of an executor of XXL-JOB. The answer has code 200 if the gateway has stored it.
func tell(url, token string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set(protocol.HeaderToken, token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var said struct {
		Code int
		Msg  string
	}
	if err := json.NewDecoder(answer.Body).Decode(&said); err != nil {
		return err
	}
	if said.Code != http.StatusOK {
		return fmt.Errorf("%s answers %d: %s", url, said.Code, said.Msg)
	}
	return nil
}
