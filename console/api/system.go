package api

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
)

// mountSystem adds what is no operation of the contract: probes and metrics outside the prefix, and the contract itself,
// beside them and below the prefix.
func (a *API) mountSystem() {
	contract, err := a.contract()
	if err != nil {
		panic("api: " + err.Error()) // the golden test meets it first
	}
	a.router.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, `{"status":"ok"}`)
	})
	a.router.Get("/readyz", a.ready)
	a.router.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(a.Gatherer, promhttp.HandlerOpts{}))
	for _, prefix := range []string{"", rest.Prefix} {
		a.router.Get(prefix+"/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/openapi+json")
			w.Write(contract) //nolint:errcheck // the client is gone
		})
		a.router.Get(prefix+"/docs", a.docs)
	}
	a.router.Get("/docs/style.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		fmt.Fprint(w, docsStyle)
	})
}

// Owns says whether a path is the API's, whether or not there is anything at it. All others are the web console's.
func Owns(path string) bool {
	for _, p := range []string{"/api", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"} {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

const probeTimeout = 2 * time.Second

// ready answers 503 while a part that Belfry needs is away, and says which.
func (a *API) ready(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	var away []string
	for i, err := range a.probe(ctx) {
		if err != nil {
			away = append(away, a.Ready[i].Name)
			a.Log.WarnContext(ctx, "not ready", "part", a.Ready[i].Name, "error", err)
		}
	}
	if len(away) > 0 {
		problem.Write(w, problem.New(http.StatusServiceUnavailable, "away: "+strings.Join(away, ", ")).RetryAfter(time.Second))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintln(w, `{"status":"ready"}`)
}

// probe asks all parts at once; nil is a part that is there.
func (a *API) probe(ctx context.Context) []error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	errs := make([]error, len(a.Ready))
	done := make(chan struct{}, len(a.Ready))
	for i, c := range a.Ready {
		go func() {
			errs[i] = c.Probe(ctx)
			done <- struct{}{}
		}()
	}
	for range a.Ready {
		<-done
	}
	return errs
}

//go:embed docs.html
var docsPage string

//go:embed docs.css
var docsStyle string

type docOperation struct {
	Method, Path, Summary, Description string
	Parameters                         []*huma.Param
}

type docGroup struct {
	Tag        string
	Operations []docOperation
}

// docs shows the operations as a page without scripts, made of nothing but what this process has.
func (a *API) docs(w http.ResponseWriter, _ *http.Request) {
	t, err := template.New("docs").Parse(docsPage)
	if err != nil {
		panic("api: " + err.Error())
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := t.Execute(w, a.docGroups()); err != nil {
		a.Log.Warn("the documentation page broke off", "error", err)
	}
}

func (a *API) docGroups() []docGroup {
	var groups []docGroup
	paths := a.rest.API.OpenAPI().Paths
	for path, item := range paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			i := slices.IndexFunc(groups, func(g docGroup) bool { return g.Tag == op.Tags[0] })
			if i < 0 {
				i = len(groups)
				groups = append(groups, docGroup{Tag: op.Tags[0]})
			}
			groups[i].Operations = append(groups[i].Operations,
				docOperation{op.Method, path, op.Summary, strings.TrimSpace(op.Description), op.Parameters})
		}
	}
	slices.SortFunc(groups, func(x, y docGroup) int { return cmp.Compare(x.Tag, y.Tag) })
	for _, g := range groups {
		slices.SortFunc(g.Operations, func(x, y docOperation) int {
			return cmp.Or(cmp.Compare(x.Path, y.Path), cmp.Compare(x.Method, y.Method))
		})
	}
	return groups
}
