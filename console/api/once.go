package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/belfryhq/belfry/console/api/problem"
	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/store/idempotency"
)

// keyStore keeps idempotency keys. *idempotency.Store documents the methods.
type keyStore interface {
	Begin(ctx context.Context, k idempotency.Key) (*idempotency.Answer, error)
	Finish(ctx context.Context, k idempotency.Key, a idempotency.Answer) error
	Forget(ctx context.Context, k idempotency.Key) error
}

// once makes a POST with an Idempotency-Key take effect once. A repetition within 24 hours gets the first answer, with
// the header Idempotency-Replayed. Only successes are stored: after an error the key is free again. Tokens are not stored,
// so the repetition of a request that made one gets an empty token.
//
// It runs after the checks of the caller's token and role, so a refused request stores nothing. A key belongs to one API token,
// or to the user of a session. A stored answer is shown only while the caller has the rights of the first request.
type once struct {
	keys keyStore
	log  *slog.Logger
}

// middleware is a huma middleware.
func (o *once) middleware(ctx huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(ctx)
	o.serve(w, r, func(w http.ResponseWriter, r *http.Request) { next(humachi.NewContext(ctx.Operation(), r, w)) })
}

func (o *once) serve(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		next(w, r)
		return
	}
	if !rest.ValidKey(key) {
		o.refuse(w, r, problem.Invalid("Idempotency-Key", rest.KeyRule))
		return
	}
	content, err := readBody(w, r)
	if err != nil {
		o.refuse(w, r, err)
		return
	}
	id := auth.FromContext(r.Context())
	k := idempotency.Key{Actor: actorOf(id), Route: r.Method + " " + r.URL.Path, Key: key, Rights: rightsOf(id),
		Content: slices.Concat([]byte(r.URL.RawQuery+"\n"), content)}
	kept, err := o.keys.Begin(r.Context(), k)
	if err != nil {
		o.refuse(w, r, err)
		return
	}
	if kept != nil {
		w.Header().Set("Idempotency-Replayed", "true")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(kept.Status)
		w.Write(kept.Body) //nolint:errcheck // the client is gone
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(content))
	o.first(w, r, k, next)
}

func (o *once) refuse(w http.ResponseWriter, r *http.Request, err error) {
	problem.Write(w, problem.From(r.Context(), o.log, err))
}

// first runs the handler for the first request with a key.
func (o *once) first(w http.ResponseWriter, r *http.Request, k idempotency.Key, next http.HandlerFunc) {
	var copied bytes.Buffer
	ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
	ww.Tee(&copied)
	finished := false
	defer func() {
		// This also frees the key if the client disconnected or the handler panicked.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 5*time.Second)
		defer cancel()
		var err error
		if status := ww.Status(); finished && status >= 200 && status < 300 {
			err = o.keys.Finish(ctx, k, idempotency.Answer{Status: status, Body: withoutToken(copied.Bytes())})
		} else {
			err = o.keys.Forget(ctx, k)
		}
		if err != nil {
			o.log.WarnContext(ctx, "cannot store the answer of an idempotency key, the key stays taken for two minutes", "err", err)
		}
	}()
	next(ww, r)
	finished = true
}

// actorOf names the owner of an idempotency key. Ids are never used again, but the name of a deleted user may be.
func actorOf(id auth.Identity) string {
	if !id.Interactive() {
		return fmt.Sprintf("token/%d", id.TokenID)
	}
	return fmt.Sprintf("user/%d", id.UserID)
}

// rightsOf describes what a caller may see and do.
func rightsOf(id auth.Identity) string {
	only := "all groups"
	if groups := id.Only(); groups != nil {
		groups = slices.Clone(groups)
		slices.Sort(groups)
		only = "groups " + strings.Join(slices.Compact(groups), " ")
	}
	return fmt.Sprintf("%s of %s, scope %q", id.Role, only, id.Scope)
}

// withoutToken empties the token in an answer, because tokens must not be stored.
func withoutToken(answer []byte) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(answer, &fields) != nil || fields["token"] == nil {
		return answer
	}
	fields["token"] = json.RawMessage(`""`)
	b, err := json.Marshal(fields)
	if err != nil {
		return nil
	}
	return b
}

// readBody reads a body within the same bounds as huma.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	// If the deadline cannot be set, the server's own one applies.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(rest.BodyReadTimeout))
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, rest.MaxBodyBytes))
	var over *http.MaxBytesError
	var timeout net.Error
	switch {
	case errors.As(err, &over):
		return nil, problem.New(http.StatusRequestEntityTooLarge, problem.TooLarge, domain.FieldError{Location: "body", Message: problem.TooLarge})
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, problem.New(http.StatusRequestTimeout, "the body arrived too slowly")
	case err != nil:
		return nil, problem.New(http.StatusBadRequest, "the body could not be read",
			domain.FieldError{Location: "body", Message: "ended early"})
	}
	return content, nil
}
