// Package rest holds the parts that all resources of the REST API share: registration of operations with the least role
// that each needs, common inputs and answers, cursors of lists, the audit log, and masking of secrets.
package rest

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

// Prefix is the prefix of the path of every operation.
const Prefix = "/api/v1"

// The bounds of one request.
const (
	MaxBodyBytes    = 1 << 20
	BodyReadTimeout = 10 * time.Second
	// RequestTimeout bounds how long a request waits for Postgres and NATS. If one of them hangs, the client gets a 503.
	RequestTimeout = 15 * time.Second
)

// Router takes the operations of all resources.
type Router struct {
	API huma.API
	// Once makes requests with an Idempotency-Key take effect once. It runs after the checks of the caller's rights.
	Once func(huma.Context, func(huma.Context))
	Log  *slog.Logger
}

// Operation describes one operation.
type Operation struct {
	Method, Path string // the path below Prefix
	Tag          string
	Summary      string
	Description  string
	Needs        account.Role // the least role; "": no credentials needed
	LogIn        bool         // API tokens are refused, whatever their role
	OwnKeys      bool         // the operation itself handles Idempotency-Key
	Status       int          // of success; 0: 200
	Body         Body         // of the request; nil: none
	BodyOptional bool
	Responses    map[string]*huma.Response // for an answer that is not JSON
}

// Body returns the schema of a request body in the contract.
type Body func(huma.Registry) *huma.Schema

// BodyOf is the schema of a T.
func BodyOf[T any]() Body {
	return func(r huma.Registry) *huma.Schema { return schemaOf(r, reflect.TypeFor[T]()) }
}

// DerivedBody is the schema of a T under another name, in which only the given fields are required.
func DerivedBody[T any](name string, required ...string) Body {
	return func(r huma.Registry) *huma.Schema {
		const prefix = "#/components/schemas/"
		of := strings.TrimPrefix(schemaOf(r, reflect.TypeFor[T]()).Ref, prefix)
		if r.Map()[name] == nil {
			s := *r.Map()[of]
			s.Required = required
			r.Map()[name] = &s
		}
		return &huma.Schema{Ref: prefix + name}
	}
}

func schemaOf(r huma.Registry, t reflect.Type) *huma.Schema { return r.Schema(t, true, t.Name()) }

// Schemas returns the schemas of the contract.
func (r *Router) Schemas() huma.Registry { return r.API.OpenAPI().Components.Schemas }

// Schema returns a reference to the schema of a type.
func (r *Router) Schema(t reflect.Type) *huma.Schema { return schemaOf(r.Schemas(), t) }

// Register adds an operation. I is its huma input, O its huma output.
func Register[I, O any](r *Router, o Operation, handle func(context.Context, auth.Identity, *I) (*O, error)) {
	op := huma.Operation{
		OperationID: operationID(o.Method, o.Path), Method: o.Method, Path: Prefix + o.Path,
		Summary: o.Summary, Description: o.Description, Tags: []string{o.Tag}, DefaultStatus: o.Status,
		MaxBodyBytes: MaxBodyBytes + 1, BodyReadTimeout: BodyReadTimeout, SkipValidateBody: true,
		Responses: o.Responses,
	}
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = &huma.Response{Description: "Problem", Content: map[string]*huma.MediaType{
		problem.MediaType: {Schema: r.Schema(reflect.TypeFor[problem.Problem]())}}}
	op.Middlewares = huma.Middlewares{requireText}
	if o.Needs != "" {
		op.Middlewares = huma.Middlewares{requireRights(o), requireText}
		op.Security = []map[string][]string{{"token": {}}, {"session": {}}}
		op.Description = strings.TrimSpace(op.Description + "\n\nNeeds role " + string(o.Needs) + ".")
		if o.LogIn {
			op.Description += " Needs a session; an API token is refused."
		}
	}
	if o.Method == http.MethodPost && o.Needs != "" && !strings.HasPrefix(o.Path, "/auth/") {
		if !o.OwnKeys {
			op.Middlewares = append(op.Middlewares, r.Once)
		}
		op.Parameters = []*huma.Param{{Name: "Idempotency-Key", In: "header", Schema: &huma.Schema{Type: huma.TypeString},
			Description: "A repetition with the same key within 24 hours changes nothing and gets the first answer"}}
	}
	if o.Body != nil {
		op.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{}}
	}
	huma.Register(r.API, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, auth.FromContext(ctx), in)
		if err != nil {
			p := problem.From(ctx, r.Log, err)
			return nil, huma.ErrorWithHeaders(p, p.GetHeaders())
		}
		return out, nil
	})
	if o.Body != nil {
		// huma describes the raw body as a string. The contract describes its content.
		op.RequestBody.Content["application/json"].Schema = o.Body(r.Schemas())
		op.RequestBody.Required = !o.BodyOptional
	}
}

// operationID makes an id such as get-jobs-id-next.
func operationID(method, path string) string {
	words := strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune("/{}.", r) })
	return strings.ToLower(method) + "-" + strings.Join(words, "-")
}

// requireRights refuses callers below the operation's role, and API tokens if it needs a session, before any part of the
// request is read.
func requireRights(o Operation) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		refused := ""
		switch id := auth.FromContext(ctx.Context()); {
		case !id.Role.AtLeast(o.Needs):
			refused = "this operation needs the role " + string(o.Needs)
		case o.LogIn && !id.Interactive():
			refused = "this operation needs a session; an API token is not enough"
		default:
			next(ctx)
			return
		}
		_, w := humachi.Unwrap(ctx)
		problem.Write(w, problem.New(http.StatusForbidden, refused))
	}
}

// requireText refuses parameters that Postgres cannot compare, and names them.
func requireText(ctx huma.Context, next func(huma.Context)) {
	var faults []domain.FieldError
	for _, p := range ctx.Operation().Parameters {
		if p.In == "path" && !strict.IsText(ctx.Param(p.Name)) {
			faults = append(faults, domain.FieldError{Location: p.Name, Message: strict.NotText})
		}
	}
	r, w := humachi.Unwrap(ctx)
	query := r.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !strict.IsText(strings.Join(query[name], "")) {
			faults = append(faults, domain.FieldError{Location: name, Message: strict.NotText})
		}
	}
	if len(faults) > 0 {
		problem.Write(w, problem.New(http.StatusUnprocessableEntity, "the request is not valid", faults...))
		return
	}
	next(ctx)
}
