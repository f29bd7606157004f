package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/account"
)

// Problem is the body of every answer that is an error (RFC 9457).
type Problem struct {
	Title  string              `json:"title" doc:"The status in words"`
	Status int                 `json:"status" doc:"The HTTP status"`
	Detail string              `json:"detail,omitempty" doc:"What went wrong this time"`
	Errors []domain.FieldError `json:"errors,omitempty" doc:"Every faulty field, by its path in the body, or by the name of the parameter or header"`

	retryAfter time.Duration
}

// Error implements error.
func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.retryAfter+time.Second-1)/time.Second)))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="belfry"`)
	}
	return h
}

// ContentType implements huma.ContentTypeFilter.
func (*Problem) ContentType(string) string { return problemType }

const problemType = "application/problem+json"

func newProblem(status int, detail string, fields ...domain.FieldError) *Problem {
	return &Problem{Title: http.StatusText(status), Status: status, Detail: detail, Errors: fields}
}

// statusOf is where codes become HTTP.
func statusOf(code domain.Code) int {
	switch code {
	case domain.Invalid:
		return http.StatusUnprocessableEntity
	case domain.NotFound:
		return http.StatusNotFound
	case domain.Conflict:
		return http.StatusConflict
	case domain.Forbidden:
		return http.StatusForbidden
	case domain.Unavailable:
		return http.StatusServiceUnavailable
	case domain.Internal:
	}
	return http.StatusInternalServerError
}

// toProblem turns any error into what a client may know of it. What they may not know is logged.
func toProblem(ctx context.Context, log *slog.Logger, err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	if errors.Is(err, account.ErrCredentials) {
		return newProblem(http.StatusUnauthorized, "a valid bearer token or session is needed")
	}
	var e *domain.Error
	if !errors.As(err, &e) {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			p := newProblem(http.StatusServiceUnavailable, "the request took too long or was given up")
			p.retryAfter = time.Second
			return p
		}
		e = domain.WrapError(domain.Internal, "", err)
	}
	status := statusOf(e.Code)
	switch {
	case status == http.StatusInternalServerError:
		log.ErrorContext(ctx, "a request failed", "error", err)
		return newProblem(status, "something is wrong on this side; the server's log says what")
	case status == http.StatusServiceUnavailable:
		log.WarnContext(ctx, "a request could not be served", "error", err)
		p := newProblem(status, e.Message)
		p.retryAfter = time.Second
		return p
	}
	fields := e.Fields
	if more := len(fields) - maxFaults; more > 0 {
		fields = append(slices.Clone(fields[:maxFaults]), domain.FieldError{Location: "body", Message: fmt.Sprintf("has %d more faults", more)})
	}
	return newProblem(status, e.Message, fields...)
}

// maxFaults bounds the faults that one answer names, or a body made of nothing else would be answered by many times
// its size.
const maxFaults = 100

// writeProblem answers outside a huma operation.
func writeProblem(w http.ResponseWriter, p *Problem) {
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p) //nolint:errcheck // the client is gone; there is nobody to tell
}

// asProblem is a huma transformer: it gives huma's own errors the shape of all others. Their locations lose the
// place that huma puts in front, and the faulty values are not repeated.
func asProblem(_ huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := newProblem(m.Status, m.Detail)
	if m.Status == http.StatusRequestEntityTooLarge {
		p = newProblem(m.Status, tooLarge, domain.FieldError{Location: "body", Message: tooLarge})
	}
	for _, d := range m.Errors {
		if d != nil {
			p.Errors = append(p.Errors, domain.FieldError{Location: plainLocation(d.Location), Message: d.Message})
		}
	}
	if m.Status == http.StatusBadRequest && len(p.Errors) == 0 { // huma says so of a body that is not there
		p.Errors = []domain.FieldError{{Location: "body", Message: m.Detail}}
	}
	return p, nil
}

func plainLocation(l string) string {
	first, rest, ok := strings.Cut(l, ".")
	if ok && slices.Contains([]string{"path", "query", "header", "body", "cookie"}, first) {
		return rest
	}
	return l
}
