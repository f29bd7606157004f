package natsinfra

import (
	"context"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"
)

const (
	greetingTime = time.Second // in which a NATS server must greet a new connection
	askedServers = 16          // at most
)

// Silent returns those of the servers, given as URLs, that do not greet a new connection within a second: host and port, sorted. A frozen server
// accepts connections but does not greet.
func Silent(ctx context.Context, servers []string) []string {
	ctx, cancel := context.WithTimeout(ctx, greetingTime)
	defer cancel()
	var mu sync.Mutex
	var silent []string // guarded by mu
	var wait sync.WaitGroup
	for _, s := range servers[:min(len(servers), askedServers)] {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" {
			continue
		}
		wait.Go(func() {
			if !greets(ctx, u.Host) {
				mu.Lock()
				defer mu.Unlock()
				silent = append(silent, u.Host)
			}
		})
	}
	wait.Wait()
	slices.Sort(silent)
	return slices.Compact(silent)
}

func greets(ctx context.Context, address string) bool {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetReadDeadline(deadline)
	}
	n, _ := conn.Read(make([]byte, 1))
	return n == 1
}
