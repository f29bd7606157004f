package natsauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfryhq/belfry/internal/domain"
)

const (
	// A connection ends at most checkEvery and the time of a check after its token has ended, which is less than a
	// minute.
	checkEvery  = 15 * time.Second
	checkWithin = 10 * time.Second

	// Every server of a cluster answers a request for its connections. The number of servers is not known.
	firstAnswer = 5 * time.Second
	nextAnswer  = 500 * time.Millisecond
	pageSize    = 1024

	// A table that was not confirmed for this long is not used to count connections.
	tableLasts = time.Minute
	// A server that has not answered for this long is gone, with its connections.
	serverLasts = time.Minute
)

// ShortLifetime is the lifetime of log-ins if there are no Sessions, because only its end then closes the connections of a
// token that is no longer valid.
const ShortLifetime = 50 * time.Second

// Directory says which tokens are valid.
type Directory interface {
	// TokensOfGroups returns the SHA-256 of all valid tokens of the named groups.
	TokensOfGroups(ctx context.Context, groups []string) (map[string][][]byte, error)
	// LiveSenders returns those of the API tokens that may still send events over NATS.
	LiveSenders(ctx context.Context, ids []int64) ([]int64, error)
}

// SessionsConfig holds the settings of Sessions. Registry may be nil.
type SessionsConfig struct {
	// System is a connection of a user of the system account.
	System    *nats.Conn
	Directory Directory
	Account   string // DefaultAccount if empty
	Log       *slog.Logger
	Registry  prometheus.Registerer
}

// Sessions knows the connections of executors, observers and senders on all servers. It ends those whose token is no
// longer valid, and counts those of each group. It learns of connections from the servers' events, and confirms its
// table every 15 s. Any number of processes may run one. It is safe for concurrent use.
type Sessions struct {
	cfg  SessionsConfig
	wake chan struct{} // capacity 1: a token may have ended
	*metrics

	mu        sync.Mutex // guards the fields below
	open      map[connection]session
	groups    map[string]int       // number of connections
	servers   map[string]time.Time // when each server last answered
	confirmed time.Time            // when the table was last confirmed; zero: never
}

type connection struct {
	server string
	id     uint64
}

type session struct {
	user  string
	group string // empty for a sender
	name  string // the client's own
	since time.Time
}

// NewSessions returns Sessions that know no connection until Run is called.
func NewSessions(cfg SessionsConfig) *Sessions {
	if cfg.Account == "" {
		cfg.Account = DefaultAccount
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Sessions{
		cfg: cfg, wake: make(chan struct{}, 1), metrics: newMetrics(cfg.Registry),
		open: make(map[connection]session), groups: make(map[string]int), servers: make(map[string]time.Time),
	}
}

// Run keeps the table and ends connections until ctx ends.
func (s *Sessions) Run(ctx context.Context) error {
	sub, err := s.cfg.System.Subscribe("$SYS.ACCOUNT."+s.cfg.Account+".*", s.event)
	if err != nil {
		return domain.WrapError(domain.Unavailable, "subscribe to the connections of NATS", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the subscription ends with the connection as well
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		if err := s.checkAll(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.WarnContext(ctx, "cannot check the connections of NATS, retrying", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-s.wake:
		}
	}
}

// Check makes Run check all connections now. It does not wait for the check.
func (s *Sessions) Check() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// checkAll ends the connections that are known to be invalid, then reads the servers' own lists and checks those.
func (s *Sessions) checkAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	early := s.check(ctx)
	if err := s.refresh(ctx); err != nil || early != nil {
		return errors.Join(early, err)
	}
	return s.check(ctx)
}

// check ends the connections in the table whose token is no longer valid.
func (s *Sessions) check(ctx context.Context) error {
	s.mu.Lock()
	users := make(map[string]bool)
	for _, one := range s.open {
		users[one.user] = true
	}
	s.mu.Unlock()
	gone, err := invalid(ctx, s.cfg.Directory, slices.Sorted(maps.Keys(users)))
	if err != nil {
		return err
	}
	s.end(refusedToken, func(one session) bool { return gone[one.user] })
	return nil
}

// EndInstances ends the connections of instances of a group.
func (s *Sessions) EndInstances(group string, instances []string) {
	s.end(refusedInstances, func(one session) bool {
		instance, _, ok := instanceOf(one.name, group)
		return ok && one.group == group && slices.Contains(instances, instance)
	})
}

func (s *Sessions) end(reason string, which func(session) bool) {
	s.mu.Lock()
	found := make(map[connection]session)
	for at, one := range s.open {
		if which(one) {
			found[at] = one
		}
	}
	s.mu.Unlock()
	byOwner := make(map[string]int)
	for at, one := range found {
		request := fmt.Appendf(nil, `{"cid":%d}`, at.id)
		// A server ignores a request without a reply subject. The answer is not needed: the next check finds what is left.
		if err := s.cfg.System.PublishRequest("$SYS.REQ.SERVER."+at.server+".KICK", s.cfg.System.NewRespInbox(), request); err != nil {
			s.cfg.Log.Warn("cannot end a connection of NATS, retrying", "group", one.group, "err", err)
			continue
		}
		s.ended.WithLabelValues(one.group, reason).Inc()
		owner := one.group
		if owner == "" {
			owner = one.user
		}
		byOwner[owner]++
	}
	for owner, n := range byOwner {
		switch reason {
		case refusedToken:
			s.cfg.Log.Info("ended connections of NATS, because their token is no longer valid", "group", owner, "count", n)
		default:
			s.cfg.Log.Warn("ended connections of NATS, because the group has more instances than max_instances, they may log in again after a minute",
				"group", owner, "count", n)
		}
	}
}

// admit counts a connection that is about to be accepted. It returns false if the group already has the maximum number of
// connections. While the table is not confirmed, it always returns true.
func (s *Sessions) admit(at connection, user, group, name string, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.confirmed.IsZero() || time.Since(s.confirmed) > tableLasts {
		return true
	}
	if s.groups[group] >= most {
		return false
	}
	s.put(at, session{user: user, group: group, name: name})
	return true
}

// Count returns the number of open connections with a group's token.
func (s *Sessions) Count(group string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[group]
}

// put adds or replaces a connection. The caller holds the mutex.
func (s *Sessions) put(at connection, one session) {
	one.since = time.Now()
	s.remove(at)
	s.open[at] = one
	if one.group != "" {
		s.groups[one.group]++
		s.connections.WithLabelValues(one.group).Set(float64(s.groups[one.group]))
	}
}

// remove removes a connection. The caller holds the mutex.
func (s *Sessions) remove(at connection) {
	one, ok := s.open[at]
	if !ok {
		return
	}
	delete(s.open, at)
	if one.group == "" {
		return
	}
	if s.groups[one.group]--; s.groups[one.group] <= 0 {
		delete(s.groups, one.group)
		s.connections.DeleteLabelValues(one.group)
		return
	}
	s.connections.WithLabelValues(one.group).Set(float64(s.groups[one.group]))
}

// event processes the events CONNECT and DISCONNECT of the account.
func (s *Sessions) event(msg *nats.Msg) {
	var e struct {
		Server struct {
			ID string `json:"id"`
		} `json:"server"`
		Client struct {
			ID   uint64 `json:"id"`
			User string `json:"user"`
			Name string `json:"name"`
		} `json:"client"`
	}
	if json.Unmarshal(msg.Data, &e) != nil || e.Server.ID == "" {
		return // another event of the account
	}
	at := connection{e.Server.ID, e.Client.ID}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch msg.Subject {
	case "$SYS.ACCOUNT." + s.cfg.Account + ".CONNECT":
		if u, ok := parseUser(e.Client.User); ok {
			s.put(at, session{user: e.Client.User, group: u.group, name: e.Client.Name})
		}
	case "$SYS.ACCOUNT." + s.cfg.Account + ".DISCONNECT":
		s.remove(at)
	}
}

// connz is a server's answer to a request for its connections.
type connz struct {
	Server struct {
		ID string `json:"id"`
	} `json:"server"`
	Data struct {
		Total       int `json:"total"`
		Offset      int `json:"offset"`
		Connections []struct {
			ID   uint64 `json:"cid"`
			User string `json:"authorized_user"`
			Name string `json:"name"`
		} `json:"connections"`
	} `json:"data"`
}

// refresh replaces the table by the servers' own lists.
func (s *Sessions) refresh(ctx context.Context) error {
	began := time.Now()
	lists, err := s.lists(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for server := range lists {
		s.servers[server] = now
	}
	maps.DeleteFunc(s.servers, func(_ string, at time.Time) bool { return now.Sub(at) > serverLasts })
	for at, one := range s.open {
		list, answered := lists[at.server]
		_, open := list[at.id]
		_, alive := s.servers[at.server]
		// A connection that began during the request may be missing in the answer.
		if !alive && now.Sub(one.since) > serverLasts || answered && !open && one.since.Before(began) {
			s.remove(at)
		}
	}
	for server, list := range lists {
		for id, one := range list {
			if at := (connection{server, id}); s.open[at].user != one.user {
				s.put(at, one)
			}
		}
	}
	s.confirmed = now
	return nil
}

// lists asks all servers for their connections.
func (s *Sessions) lists(ctx context.Context) (map[string]map[uint64]session, error) {
	inbox := s.cfg.System.NewRespInbox()
	sub, err := s.cfg.System.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // the subscription ends with the connection as well
	if err := s.cfg.System.PublishRequest("$SYS.REQ.SERVER.PING.CONNZ", inbox, s.page(0)); err != nil {
		return nil, err
	}
	found := make(map[string]map[uint64]session)
	unfinished := make(map[string]bool) // servers of which a page is missing
	for wait := firstAnswer; ; wait = nextAnswer {
		waiting, cancel := context.WithTimeout(ctx, wait)
		msg, err := sub.NextMsgWithContext(waiting)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && len(found) == 0:
			return nil, domain.WrapError(domain.Unavailable, "no NATS server lists its connections", err)
		case err != nil:
			maps.DeleteFunc(found, func(server string, _ map[uint64]session) bool { return unfinished[server] })
			return found, nil
		}
		var answer connz
		if err := json.Unmarshal(msg.Data, &answer); err != nil || answer.Server.ID == "" {
			return nil, domain.WrapError(domain.Internal, "read the connections of a NATS server", err)
		}
		list := found[answer.Server.ID]
		if list == nil {
			list = make(map[uint64]session)
			found[answer.Server.ID] = list
		}
		for _, c := range answer.Data.Connections {
			if u, ok := parseUser(c.User); ok {
				list[c.ID] = session{user: c.User, group: u.group, name: c.Name}
			}
		}
		next := answer.Data.Offset + len(answer.Data.Connections)
		unfinished[answer.Server.ID] = next < answer.Data.Total
		if next < answer.Data.Total && len(answer.Data.Connections) > 0 {
			if err := s.cfg.System.PublishRequest("$SYS.REQ.SERVER."+answer.Server.ID+".CONNZ", inbox, s.page(next)); err != nil {
				return nil, err
			}
		}
	}
}

func (s *Sessions) page(offset int) []byte {
	return fmt.Appendf(nil, `{"acc":%q,"auth":true,"limit":%d,"offset":%d}`, s.cfg.Account, pageSize, offset)
}

// invalid returns those of the users whose token is no longer valid.
func invalid(ctx context.Context, d Directory, users []string) (map[string]bool, error) {
	groups := make(map[string]bool)
	var ids []int64
	for _, user := range users {
		switch u, ok := parseUser(user); {
		case ok && u.group != "":
			groups[u.group] = true
		case ok:
			ids = append(ids, u.sender)
		}
	}
	valid := make(map[string]bool)
	if len(groups) > 0 {
		tokens, err := d.TokensOfGroups(ctx, slices.Sorted(maps.Keys(groups)))
		if err != nil {
			return nil, err
		}
		for group, digests := range tokens {
			for _, digest := range digests {
				var hash tokenHash
				copy(hash[:], digest)
				valid[hash.user(group)] = true
			}
		}
	}
	if len(ids) > 0 {
		live, err := d.LiveSenders(ctx, ids)
		if err != nil {
			return nil, err
		}
		for _, id := range live {
			valid[SenderName(id)] = true
		}
	}
	gone := make(map[string]bool)
	for _, user := range users {
		if _, ok := parseUser(user); ok && !valid[user] {
			gone[user] = true
		}
	}
	return gone, nil
}
