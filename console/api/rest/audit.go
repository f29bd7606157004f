package rest

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/console/auth"
)

// AuditStore keeps the audit log.
type AuditStore interface {
	Record(ctx context.Context, actor, remote, action, object string, before, after any) error
}

// Audit writes committed changes to the audit log.
type Audit struct {
	Store    AuditStore
	Failures prometheus.Counter // entries that could not be written
	Log      *slog.Logger
}

// Record writes a change, with secrets masked. The change is committed already, so a failure is logged and counted, and
// the client gets the answer of a success.
func (a *Audit) Record(ctx context.Context, id auth.Identity, action, object string, before, after any) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := a.Store.Record(ctx, id.Actor(), id.Remote, action, object, WithoutSecrets(before), WithoutSecrets(after)); err != nil {
		a.Failures.Inc()
		a.Log.ErrorContext(ctx, "cannot write to the audit log, a change is missing there", "err", err,
			"actor", id.Actor(), "action", action, "object", object)
	}
}
