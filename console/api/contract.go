package api

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belfryhq/belfry/console/api/jobs"
	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/event"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/firecheck"
	"github.com/belfryhq/belfry/internal/runstats"
	"github.com/belfryhq/belfry/internal/store/alerts"
)

// humaConfig turns off the parts of huma that Belfry replaces: documents, pages and schema links.
func (a *API) humaConfig() huma.Config {
	version := a.Build.Version
	if version == "" {
		version = "dev"
	}
	c := huma.DefaultConfig("Belfry", version)
	c.Info.Description = "A distributed job scheduler. Errors are application/problem+json (RFC 9457) and name every faulty field at once."
	c.OpenAPIPath, c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", "", nil
	c.Transformers = []huma.Transformer{problem.FromHuma, rest.HideSecrets}
	c.RejectUnknownQueryParameters = true
	c.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":   {Type: "http", Scheme: "bearer", Description: "An API token, or the token of a session"},
		"session": {Type: "apiKey", In: "cookie", Name: auth.CookieName, Description: "The cookie that POST /auth/login sets"},
	}
	return c
}

// schemaNames are the names in the contract of types whose Go names are clear only together with their package, such as event.Trigger.
var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[event.Trigger]():            "EventTrigger",
	reflect.TypeFor[rest.Page[event.Trigger]](): "PageEventTrigger",
	reflect.TypeFor[firecheck.Item]():           "FireFinding",
	reflect.TypeFor[firecheck.Page]():           "FireAudit",
	reflect.TypeFor[runstats.Counts]():          "RunCounts",
	reflect.TypeFor[runstats.Live]():            "LiveCounts",
	reflect.TypeFor[runstats.Point]():           "ReportPoint",
	reflect.TypeFor[runstats.Series]():          "RunReport",
}

// schemaName names the schema of a type in the contract.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if name, ok := schemaNames[t]; ok {
		return name
	}
	return huma.DefaultSchemaNamer(t, hint)
}

// finishContract adds facts that Go types cannot express, and removes huma's error model, which no answer has.
func (a *API) finishContract() {
	schemas := a.rest.API.OpenAPI().Components.Schemas.Map()
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
		schemas[schema].Properties["route"] = &huma.Schema{OneOf: []*huma.Schema{a.rest.Schema(reflect.TypeFor[explain.Explanation]()), {Type: "null"}}}
		schemas[schema].Properties["shard"] = &huma.Schema{OneOf: []*huma.Schema{a.rest.Schema(reflect.TypeFor[domain.Shard]()), {Type: "null"}}}
	}
	for field, t := range map[string]reflect.Type{"last_success": reflect.TypeFor[domain.LastSuccess](), "last_failure": reflect.TypeFor[domain.LastFailure]()} {
		schemas["JobHealth"].Properties[field] = &huma.Schema{OneOf: []*huma.Schema{a.rest.Schema(t), {Type: "null"}}}
	}
	schemas["Delivery"].Properties["run_id"].Nullable = true
	schemas["LastRun"].Properties["id"].Nullable = true
	for _, name := range []string{"Schedule", "RetryBackoff", "Child", "Alert", "Script"} {
		schemas[name].Required = slices.DeleteFunc(slices.Clone(schemas[name].Required), func(f string) bool {
			return f != "kind" && f != "job_id" && f != "language" && f != "code"
		})
	}
}

// enumerations returns the values of enumerated fields by schema and field. huma sees plain strings there.
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
		"JobHealth":     {"state": names(domain.HealthStates...)},
		"Child":         {"on": names(domain.OnSuccess, domain.OnFailure, domain.OnAlways)},
		"Missed":        {"policy": misfire},
		"Event":         {"via": names(event.ViaREST, event.ViaNATS)},
		"Delivery":      {"outcome": names(event.DeliveryOutcomes...)},
		"Script":        {"language": names(domain.ScriptLanguages...)},
		"ScriptVersion": {"language": names(domain.ScriptLanguages...)},
		"FireFinding":   {"fate": names(firecheck.Fates...)},
		"Why":           {"fate": names(firecheck.Fates...)},
		"Explanation":   {"code": names(explain.Codes()...)},
		"MissedAt":      {"code": names(explain.Codes()...)},
		"LogState":      {"state": states},
		"LastRun":       {"state": append(names(domain.States...), jobs.MissedState)},
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
	b, err := json.MarshalIndent(a.rest.API.OpenAPI(), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the contract: %w", err)
	}
	return append(b, '\n'), nil
}
