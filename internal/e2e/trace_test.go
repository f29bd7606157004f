//go:build unix

package e2e

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"

	"github.com/belfryhq/belfry/internal/client"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/rig"
	"github.com/belfryhq/belfry/internal/pgtest"
	"github.com/belfryhq/belfry/internal/store"
)

// A traceSpan is a span as the collector received it.
type traceSpan struct {
	service, name, trace, id, parent string
	attributes                       map[string]string
}

// traceCollector receives spans by OTLP over HTTP.
type traceCollector struct {
	url string

	mu    sync.Mutex
	spans []traceSpan
}

func newTraceCollector(t *testing.T) *traceCollector {
	t.Helper()
	c := &traceCollector{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var in coltracepb.ExportTraceServiceRequest
		if err == nil && r.URL.Path == "/v1/traces" {
			err = proto.Unmarshal(body, &in)
		}
		if err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c.add(&in)
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *traceCollector) add(in *coltracepb.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range in.GetResourceSpans() {
		service := texts(r.GetResource().GetAttributes())["service.name"]
		for _, s := range r.GetScopeSpans() {
			for _, sp := range s.GetSpans() {
				c.spans = append(c.spans, traceSpan{
					service, sp.GetName(), hex.EncodeToString(sp.GetTraceId()), hex.EncodeToString(sp.GetSpanId()), hex.EncodeToString(sp.GetParentSpanId()), texts(sp.GetAttributes()),
				})
			}
		}
	}
}

func texts(list []*commonpb.KeyValue) map[string]string {
	out := make(map[string]string, len(list))
	for _, a := range list {
		out[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return out
}

// of returns the spans of a trace.
func (c *traceCollector) of(trace string) []traceSpan {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.spans), func(s traceSpan) bool { return s.trace != trace })
}

// paths returns the names of a trace's spans, each with those of the spans above it, sorted. The path of a span whose parent is missing begins
// with the parent's id.
func (c *traceCollector) paths(trace string) []string {
	spans := c.of(trace)
	byID := make(map[string]traceSpan, len(spans))
	for _, s := range spans {
		byID[s.id] = s
	}
	var paths []string
	for _, s := range spans {
		path := s.name
		for s.parent != "" {
			up, ok := byID[s.parent]
			if !ok {
				path = s.parent + " > " + path
				break
			}
			path, s = up.name+" > "+path, up
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

// tracedCluster starts a cluster whose processes export traces to a collector.
func tracedCluster(t *testing.T, env ...string) (*cluster, *traceCollector) {
	t.Helper()
	to := newTraceCollector(t)
	c := &cluster{t: t, dir: t.TempDir(), dbURL: pgtest.Database(t, store.Migrate)}
	c.env = append([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + to.url, "OTEL_BSP_SCHEDULE_DELAY=50", "BELFRY_TRACE_URL=https://traces.example.org/trace/{trace_id}"}, env...)
	c.prepareNATS()
	c.startNATS()
	c.begin()
	c.dispatcher()
	c.scheduler()
	c.executor("i1")
	return c, to
}

// post triggers something by a request with a traceparent header.
func (c *cluster) post(path, body, traceparent string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.server+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", traceparent)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusAccepted {
		text, _ := io.ReadAll(res.Body)
		c.t.Fatalf("POST %s: %s %s", path, res.Status, text)
	}
}

// runOf waits for the only run of a job and for its end.
func (c *cluster) runOf(job domain.JobID) domain.Run {
	c.t.Helper()
	var id domain.RunID
	eventually(c.t, patience, "the job has a run", func() bool {
		runs, err := c.api.Runs(c.t.Context(), client.RunFilter{JobID: job}, 1)
		if err != nil {
			c.t.Fatal(err)
		}
		if len(runs) > 0 {
			id = runs[0].ID
		}
		return len(runs) > 0
	})
	return c.finishes(id, patience)
}

// One trace leads from the request that triggers a job through offers, attempts and results to the child, across all processes. The
// executor's spans come from executor/otel.
func TestTraceFromTriggerToChild(t *testing.T) {
	t.Parallel()
	const traceID, callerSpan = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	c, to := tracedCluster(t)
	child := c.job("child")
	job := c.job("parent", shell(`echo "::output $TRACEPARENT"; [ "$BELFRY_ATTEMPT" = 2 ]`), retries(1), func(s *domain.JobSpec) {
		s.Children = []domain.Child{{JobID: child.ID, On: domain.OnSuccess}}
	})
	c.post(fmt.Sprintf("/api/v1/jobs/%d/trigger", job.ID), "", "00-"+traceID+"-"+callerSpan+"-01")
	run, second := c.runOf(job.ID), c.runOf(child.ID)
	for _, r := range []domain.Run{run, second} {
		if r.TraceID != traceID || r.TraceURL != "https://traces.example.org/trace/"+traceID {
			t.Errorf("run of %s: trace %s, %s", r.JobName, r.TraceID, r.TraceURL)
		}
	}
	if !strings.HasPrefix(run.Output, "00-"+traceID+"-") {
		t.Errorf("TRACEPARENT of the program is %q", run.Output)
	}
	const first = callerSpan + " > trigger > run parent"
	want := []string{
		callerSpan + " > trigger", first,
		first + " > attempt", first + " > attempt > offer", first + " > attempt > handle command",
		first + " > attempt", first + " > attempt > offer", first + " > attempt > handle command", first + " > attempt > result",
		first + " > run child", first + " > run child > attempt", first + " > run child > attempt > offer",
		first + " > run child > attempt > handle echo", first + " > run child > attempt > result",
	}
	slices.Sort(want)
	rig.Eventually(t, patience, "all spans have arrived", func() bool { return len(to.of(traceID)) >= len(want) })
	if got := to.paths(traceID); !slices.Equal(got, want) {
		t.Errorf("the trace has the spans\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, s := range to.of(traceID) {
		service := "belfry-executor"
		switch {
		case s.name == "trigger":
			service = "belfry-console"
		case !strings.HasPrefix(s.name, "handle "):
			continue // a dispatcher, a scheduler or a console
		}
		if s.service != service {
			t.Errorf("span %s comes from %s", s.name, s.service)
		}
	}
}

// A run without a trace of its caller begins its own trace, whose id is in the run's JSON.
func TestTraceOfScheduledRun(t *testing.T) {
	t.Parallel()
	c, to := tracedCluster(t)
	run := c.finishes(c.trigger(c.job("alone").ID), patience)
	want := []string{"run alone", "run alone > attempt", "run alone > attempt > handle echo", "run alone > attempt > offer", "run alone > attempt > result"}
	rig.Eventually(t, patience, "all spans have arrived", func() bool { return len(to.of(run.TraceID)) >= len(want) })
	if got := to.paths(run.TraceID); !slices.Equal(got, want) {
		t.Errorf("the trace has the spans\n%s", strings.Join(got, "\n"))
	}
}

// The sampler of the OTEL_* variables decides, and a caller who does not record its trace is followed.
func TestTraceSampling(t *testing.T) {
	t.Parallel()
	const traceID = "0af7651916cd43dd8448eb211c80319c"
	c, to := tracedCluster(t, "OTEL_TRACES_SAMPLER=parentbased_always_off")
	unrecorded := c.job("unrecorded")
	c.finishes(c.trigger(unrecorded.ID), patience)
	job := c.job("recorded")
	c.post("/api/v1/events/orders.created", `{}`, "00-"+traceID+"-b7ad6b7169203331-01") // no trigger matches
	c.post(fmt.Sprintf("/api/v1/jobs/%d/trigger", job.ID), "", "00-"+traceID+"-b7ad6b7169203331-01")
	c.runOf(job.ID)
	rig.Eventually(t, patience, "the recorded spans have arrived", func() bool { return len(to.of(traceID)) >= 7 })
	to.mu.Lock()
	defer to.mu.Unlock()
	for _, s := range to.spans {
		if s.trace != traceID {
			t.Errorf("span %s of trace %s was exported", s.name, s.trace)
		}
	}
}

// Processes without an exporter pass the trace on: the handler's span is below the caller's.
func TestTraceIsPassedOn(t *testing.T) {
	t.Parallel()
	const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	c := newCluster(t)
	c.dispatcher()
	c.scheduler()
	c.executor("i1")
	job := c.job("passes", shell(`echo "::output $TRACEPARENT"`))
	c.post(fmt.Sprintf("/api/v1/jobs/%d/trigger", job.ID), "", traceparent)
	if run := c.runOf(job.ID); run.Output != traceparent || run.TraceURL != "" {
		t.Errorf("TRACEPARENT of the program is %q; the run's link is %q", run.Output, run.TraceURL)
	}
	alone := c.job("alone", shell(`echo "::output $TRACEPARENT"`))
	if run := c.finishes(c.trigger(alone.ID), patience); run.Output != "" || len(run.TraceID) != 32 {
		t.Errorf("TRACEPARENT of the program is %q; the run's trace is %q", run.Output, run.TraceID)
	}
}
