package api

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/alerts"
)

// humaConfig is huma without what Belfry does itself: documents, pages and schema links.
func (a *API) humaConfig() huma.Config {
	version := a.Version
	if version == "" {
		version = "dev"
	}
	c := huma.DefaultConfig("Belfry", version)
	c.Info.Description = "A distributed job scheduler. Errors are application/problem+json (RFC 9457) and name every faulty field at once."
	c.OpenAPIPath, c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", "", nil
	c.Transformers = []huma.Transformer{asProblem, hideParams}
	c.RejectUnknownQueryParameters = true
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":   {Type: "http", Scheme: "bearer", Description: "An API token, or the token of a log-in"},
		"session": {Type: "apiKey", In: "cookie", Name: auth.CookieName, Description: "Set by the log-in"},
	}
	return c
}

// Markers of request bodies whose contract differs from the Go type they are decoded into.
type (
	jobBodyType  struct{}
	jobPatchType struct{}
	// channelPatchType is a channel of which anything may be left out.
	channelPatchType struct{}
)

var (
	jobBody  = reflect.TypeFor[jobBodyType]()
	jobPatch = reflect.TypeFor[jobPatchType]()
)

// schema returns a reference to the type's schema in the contract.
func (a *API) schema(t reflect.Type) *huma.Schema {
	switch t {
	case jobBody:
		return a.derived("JobInput", "group", "name", "schedule")
	case jobPatch:
		return a.derived("JobPatch")
	case reflect.TypeFor[channelPatchType]():
		return a.derivedOf(reflect.TypeFor[channelBody](), "ChannelBody", "ChannelPatch")
	}
	return a.huma.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

// derived returns a reference to the schema of a job as it is written: all that a client may leave out is optional.
func (a *API) derived(name string, required ...string) *huma.Schema {
	return a.derivedOf(reflect.TypeFor[domain.Job](), "Job", name, required...)
}

// derivedOf is derived for the schema of any type, known under the name of.
func (a *API) derivedOf(t reflect.Type, of, name string, required ...string) *huma.Schema {
	registry := a.huma.OpenAPI().Components.Schemas
	registry.Schema(t, true, of)
	if registry.Map()[name] == nil {
		s := *registry.Map()[of]
		s.Required = required
		registry.Map()[name] = &s
	}
	return &huma.Schema{Ref: "#/components/schemas/" + name}
}

// operationID makes an id such as get-jobs-id-next.
func operationID(method, path string) string {
	words := strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune("/{}.", r) })
	return strings.ToLower(method) + "-" + strings.Join(words, "-")
}

// finishContract adds what Go types do not say, and drops huma's own error model, which never leaves.
func (a *API) finishContract() {
	schemas := a.huma.OpenAPI().Components.Schemas.Map()
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	for schema, fields := range enumerations() {
		s := schemas[schema]
		if s == nil {
			panic("api: the contract has no schema " + schema)
		}
		for field, values := range fields {
			if s.Properties[field] == nil {
				panic(fmt.Sprintf("api: schema %s has no field %s", schema, field))
			}
			s.Properties[field].Enum = values
		}
	}
	for _, schema := range schemas {
		for _, property := range schema.Properties {
			if property.Type == huma.TypeArray {
				property.Nullable = false // lists are never null in answers
			}
		}
	}
	schemas["Alert"].Properties["on"].Items.Enum = names(domain.AlertKinds...)
	for _, name := range []string{"Calendar", "CalendarBody", "CalendarChange"} {
		schemas[name].Properties["weekdays"].Items.Enum = names(domain.Weekdays...)
		schemas[name].Properties["dates"].Items.Format = "date"
	}
	for _, schema := range []string{"Run", "RunDetail"} {
		schemas[schema].Properties["broadcast_id"].Nullable = true
		schemas[schema].Properties["parent_run_id"].Nullable = true
		schemas[schema].Properties["shard"] = &huma.Schema{OneOf: []*huma.Schema{a.schema(reflect.TypeFor[domain.Shard]()), {Type: "null"}}}
	}
	schemas["Delivery"].Properties["run_id"].Nullable = true
	schemas["LastRun"].Properties["id"].Nullable = true
	for _, name := range []string{"Schedule", "RetryBackoff", "Child", "Alert", "Script"} {
		schemas[name].Required = slices.DeleteFunc(slices.Clone(schemas[name].Required), func(f string) bool {
			return f != "kind" && f != "job_id" && f != "language" && f != "code"
		})
	}
}

// enumerations are the values of fields whose Go types are plain strings to huma, by schema and field.
func enumerations() map[string]map[string][]any {
	misfire := names(domain.MisfireSkip, domain.MisfireFireOnce, domain.MisfireFireAll)
	states := names(domain.States...)
	causes := names(domain.CauseSchedule, domain.CauseMisfire, domain.CauseManual, domain.CauseAPI, domain.CauseEvent,
		domain.CauseChild, domain.CauseBackfill)
	job := map[string][]any{
		"misfire": misfire, "route": names(domain.Routes...),
		"block":       names(domain.BlockSerial, domain.BlockDiscardLater, domain.BlockCoverEarly, domain.BlockParallel),
		"block_scope": names(domain.ScopeCluster, domain.ScopeInstance),
	}
	return map[string]map[string][]any{
		"Job": job, "ListedJob": job,
		"Schedule": {
			"kind": names(domain.ScheduleNone, domain.ScheduleCron, domain.ScheduleFixedRate,
				domain.ScheduleFixedDelay, domain.ScheduleOnce),
			"dialect": names(domain.DialectStandard, domain.DialectQuartz),
		},
		"Child":         {"on": names(domain.OnSuccess, domain.OnFailure, domain.OnAlways)},
		"Missed":        {"policy": misfire},
		"Event":         {"via": names(domain.ViaREST, domain.ViaNATS)},
		"Delivery":      {"outcome": names(domain.DeliveryOutcomes...)},
		"Script":        {"language": names(domain.ScriptLanguages...)},
		"ScriptVersion": {"language": names(domain.ScriptLanguages...)},
		"FireFinding":   {"fate": names(domain.FireFates...)},
		"Why":           {"fate": names(domain.FireFates...)},
		"LogState":      {"state": states},
		"LastRun":       {"state": append(names(domain.States...), missedState)},
		"Run":           {"state": states, "cause": causes},
		"RunDetail":     {"state": states, "cause": causes},
		"Channel":       {"kind": names(alert.Kinds...), "language": names(alert.English, alert.Chinese)},
		"ChannelBody":   {"kind": names(alert.Kinds...), "language": names(alert.English, alert.Chinese)},
		"Email":         {"tls": names(alert.StartTLS, alert.Implicit, alert.NoTLS)},
		"EmailBody":     {"tls": names(alert.StartTLS, alert.Implicit, alert.NoTLS)},
		"AlertEntry":    {"kind": names(domain.AlertKinds...), "state": states, "cause": causes},
		"AlertDelivery": {"state": names(alerts.DeliveryStates...)},
	}
}

func names[T ~string](values ...T) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

// contract returns the OpenAPI document.
func (a *API) contract() ([]byte, error) {
	b, err := json.MarshalIndent(a.huma.OpenAPI(), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the contract: %w", err)
	}
	return append(b, '\n'), nil
}
