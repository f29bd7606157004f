// Package problem turns errors into the answers of the REST API: application/problem+json (RFC 9457).
//
// Handlers return domain errors, and this package maps their codes to HTTP statuses. An internal error is logged in full;
// the client gets only a general text.
package problem

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

// MediaType is the content type of a problem.
const MediaType = "application/problem+json"

// TooLarge is the detail of the answer to a body over 1 MiB.
const TooLarge = "the body is over 1 MiB (1048576 bytes)"

// InternalDetail is the detail of a 500. It reveals nothing about the error.
const InternalDetail = "internal error; the server's log has the details"

// maxFaults bounds the faults in one answer. Without a bound, a body with many faults gets an answer many times its size.
const maxFaults = 100

// limitedWait is the Retry-After of a 429 for a limit of a group. It is the interval at which live runs are counted.
const limitedWait = 5 * time.Second

// Problem is the body of every error answer.
type Problem struct {
	Title  string              `json:"title" doc:"The name of the HTTP status"`
	Status int                 `json:"status" doc:"The HTTP status"`
	Detail string              `json:"detail,omitempty" doc:"The cause of this error"`
	Errors []domain.FieldError `json:"errors,omitempty" doc:"Every faulty field: its path in the body, or the name of the parameter or header"`

	retryAfter time.Duration
}

// New makes a problem.
func New(status int, detail string, fields ...domain.FieldError) *Problem {
	return &Problem{Title: http.StatusText(status), Status: status, Detail: detail, Errors: fields}
}

// RetryAfter adds the header Retry-After to the answer and returns p.
func (p *Problem) RetryAfter(wait time.Duration) *Problem {
	p.retryAfter = wait
	return p
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
func (*Problem) ContentType(string) string { return MediaType }

// From turns an error into the problem that the client gets. It logs internal and unavailable errors.
func From(ctx context.Context, log *slog.Logger, err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	if errors.Is(err, account.ErrCredentials) {
		return New(http.StatusUnauthorized, "a valid bearer token or session is needed")
	}
	var e *domain.Error
	if !errors.As(err, &e) {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return New(http.StatusServiceUnavailable, "the request took too long or was cancelled").RetryAfter(time.Second)
		}
		e = domain.WrapError(domain.Internal, "", err)
	}
	status := statusOf(e.Code)
	switch {
	case status == http.StatusInternalServerError:
		log.ErrorContext(ctx, "a request failed, answering 500", "err", err)
		return New(status, InternalDetail)
	case status == http.StatusServiceUnavailable:
		log.WarnContext(ctx, "a request failed, answering 503", "err", err)
		return New(status, e.Message).RetryAfter(time.Second)
	case status == http.StatusTooManyRequests:
		return New(status, e.Message).RetryAfter(limitedWait)
	}
	fields := e.Fields
	if more := len(fields) - maxFaults; more > 0 {
		fields = append(slices.Clone(fields[:maxFaults]), domain.FieldError{Location: "body", Message: fmt.Sprintf("has %d more faults", more)})
	}
	return New(status, e.Message, fields...)
}

// statusOf is the only mapping from codes to HTTP statuses.
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
	case domain.Limited:
		return http.StatusTooManyRequests
	case domain.Unavailable:
		return http.StatusServiceUnavailable
	case domain.Internal:
	}
	return http.StatusInternalServerError
}

// Write sends a problem from outside a huma operation.
func Write(w http.ResponseWriter, p *Problem) {
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", MediaType)
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p) //nolint:errcheck // the client has gone
}

// FromHuma is a huma transformer that gives huma's own errors the shape of all others. It removes huma's prefix from
// their locations and does not repeat the faulty values.
func FromHuma(_ huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := New(m.Status, m.Detail)
	if m.Status == http.StatusRequestEntityTooLarge {
		p = New(m.Status, TooLarge, domain.FieldError{Location: "body", Message: TooLarge})
	}
	for _, d := range m.Errors {
		if d != nil {
			p.Errors = append(p.Errors, domain.FieldError{Location: plainLocation(d.Location), Message: d.Message})
		}
	}
	if m.Status == http.StatusBadRequest && len(p.Errors) == 0 { // the body is missing
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

// Invalid returns a domain error with one faulty field.
func Invalid(location, message string) error {
	return &domain.Error{Code: domain.Invalid, Message: "the request is not valid",
		Fields: []domain.FieldError{{Location: location, Message: message}}}
}

// Clip bounds a text that the client sent and that the answer repeats.
func Clip(s string) string {
	if r := []rune(s); len(r) > 100 {
		return string(r[:100]) + "…"
	}
	return s
}
