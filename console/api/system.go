package api

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/system"
	"github.com/belfryhq/belfry/console/auth"
)

// mountSystem adds the paths that are not operations of the contract: probes and metrics outside the prefix, and the
// contract both outside and below the prefix.
func (a *API) mountSystem(state *system.API) {
	contract, err := a.contract()
	if err != nil {
		panic("api: " + err.Error()) // TestContractGolden fails in this case
	}
	a.router.Method("GET", "/healthz", system.Alive(a.Build))
	a.router.Get("/readyz", state.Ready)
	a.router.Get("/metrics", a.serveMetrics)
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

// serveMetrics writes the metrics. A caller who may not see all groups gets no series of the others.
func (a *API) serveMetrics(w http.ResponseWriter, r *http.Request) {
	gatherer := a.Gatherer
	if groups := auth.FromContext(r.Context()).Measures(); groups != nil {
		gatherer = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			families, err := a.Gatherer.Gather()
			return onlyGroups(families, groups), err
		})
	}
	promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// onlyGroups removes the series with a label group that names none of the groups.
func onlyGroups(families []*dto.MetricFamily, groups []string) []*dto.MetricFamily {
	of := func(l *dto.LabelPair) bool {
		return l.GetName() == "group" && l.GetValue() != "" && !slices.Contains(groups, l.GetValue())
	}
	for _, f := range families {
		f.Metric = slices.DeleteFunc(f.Metric, func(m *dto.Metric) bool { return slices.ContainsFunc(m.Label, of) })
	}
	return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return len(f.Metric) == 0 })
}

// Owns reports whether a path belongs to the API, also if nothing is there. All other paths belong to the web console.
func Owns(path string) bool {
	for _, p := range []string{"/api", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"} {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
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

// docs shows the operations as a page without scripts and without resources of other hosts.
func (a *API) docs(w http.ResponseWriter, _ *http.Request) {
	t, err := template.New("docs").Parse(docsPage)
	if err != nil {
		panic("api: " + err.Error())
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := t.Execute(w, a.docGroups()); err != nil {
		a.Log.Warn("cannot write the documentation page, cutting it off", "err", err)
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
