package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/belfryhq/belfry/internal/natsauth"
)

// The users of the measured NATS server. Executors have the same permissions as with a group's token, so the cost
// includes the permission checks. Only the log-in is simpler.
const (
	systemUser   = "belfry"
	executorUser = "executor"
	group        = "bench"
)

// natsAnswer is the answer of the NATS part to "take".
type natsAnswer struct {
	URL     string `json:"url"`
	Traffic int64  `json:"traffic_bytes"` // to and from clients
	Stored  int64  `json:"stored_bytes"`  // by JetStream, now
}

// runNATS runs a NATS server with the settings of package embednats: file storage, synced every few seconds.
func (p *part) runNATS(ctx context.Context) error {
	opts, err := natsOptions(p.order)
	if err != nil {
		return err
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("prepare NATS: %w", err)
	}
	go ns.Start()
	defer func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	}()
	if !ns.ReadyForConnections(readyWithin) {
		return errors.New("NATS was not ready in time")
	}
	p.take = func() (json.RawMessage, error) {
		v, err := ns.Varz(nil)
		if err != nil {
			return nil, err
		}
		j, err := ns.Jsz(nil)
		if err != nil {
			return nil, err
		}
		return json.Marshal(natsAnswer{
			URL: "nats://" + net.JoinHostPort(opts.Host, fmt.Sprint(v.Port)), Traffic: v.InBytes + v.OutBytes, Stored: int64(j.Store),
		})
	}
	p.ready()
	<-ctx.Done()
	return nil
}

func natsOptions(o Order) (*server.Options, error) {
	// All executors of the benchmark share one user, so it has the permissions of every instance.
	const one = "one-instance"
	allowed, err := natsauth.Permissions(group, one)
	if err != nil {
		return nil, err
	}
	every := func(subjects []string) string {
		return strings.ReplaceAll(strings.Join(subjects, `", "`), "."+one, ".*")
	}
	rules := fmt.Sprintf(`
		accounts { BELFRY { jetstream: enabled, users: [
			{ user: %[1]s, password: %[2]q }
			{ user: %[3]s, password: %[2]q, permissions {
				publish: [ "%[4]s" ], subscribe: [ "%[5]s" ], allow_responses: { max: %[6]d, expires: %[7]q } } }
		] } }`,
		systemUser, o.Password, executorUser, every(allowed.Pub.Allow), every(allowed.Sub.Allow),
		allowed.Resp.MaxMsgs, allowed.Resp.Expires)
	opts := &server.Options{}
	if err := opts.ProcessConfigString(rules); err != nil {
		return nil, fmt.Errorf("configure NATS: %w", err)
	}
	opts.ServerName, opts.Host, opts.Port = "belfry-bench", "127.0.0.1", server.RANDOM_PORT
	opts.NoSigs, opts.NoLog, opts.DisableJetStreamBanner = true, true, true
	opts.JetStream, opts.StoreDir, opts.JetStreamMaxStore = true, o.Dir, 8<<30
	opts.SyncInterval = 5 * time.Second
	return opts, nil
}
