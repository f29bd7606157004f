package store

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// silentMax is how long sent bytes may stay unacknowledged before a connection counts as broken. The kernel's default
// is about 15 minutes. For that time, a host that lost its power would block every statement in progress.
const silentMax = 10 * time.Second

// dial connects to Postgres so that the loss of its host is detected.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{
		Timeout:         10 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
		Control: func(network, _ string, c syscall.RawConn) error {
			if network == "unix" {
				return nil
			}
			var set error
			err := c.Control(func(fd uintptr) {
				set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silentMax.Milliseconds()))
			})
			if err != nil {
				return err
			}
			return set
		},
	}
	return d.DialContext(ctx, network, address)
}
