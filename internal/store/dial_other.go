//go:build !linux

package store

import (
	"context"
	"net"
	"time"
)

// dial connects to Postgres. Between statements, keepalives detect a vanished host. Within a statement, txMax ends the
// wait.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{
		Timeout:         10 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
	}
	return d.DialContext(ctx, network, address)
}
