// Package hostile implements a client that attacks Belfry with the token of one group, at bounded rates. Tests run it next to
// other groups, whose runs it must not affect.
package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/time/rate"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/natsauth"
)

// Kind is one kind of attack.
type Kind string

// The kinds of attack.
const (
	JunkResults    Kind = "junk results"    // results of 1 MiB that are not valid
	UnknownResults Kind = "unknown results" // well-formed results of runs that do not exist, 250 in each message
	SmallResults   Kind = "small results"   // single results of unknown runs, as many messages as possible
	Logs           Kind = "logs"            // 500 KiB of lines of unknown runs
	JunkLogs       Kind = "junk logs"       // small messages that are not valid
	Heartbeats     Kind = "heartbeats"      // heartbeats of 16 KiB and of 60 KiB, under a new name after every few messages
	Logins         Kind = "logins"          // log-ins in sequence, half of them with a wrong token
	Answers        Kind = "answers"         // results whose acknowledgements NATS sends to the heartbeats of the Victims
)

// Kinds returns all kinds of attack.
func Kinds() []Kind {
	return []Kind{JunkResults, UnknownResults, SmallResults, Logs, JunkLogs, Heartbeats, Logins, Answers}
}

// The bounds of the client, for all kinds of attack together.
const (
	bytesPerSecond    = 20 << 20
	messagesPerSecond = 5000
	connections       = 50
)

// Config holds the server, the client's group and token, and the kinds and bounds of the attack.
type Config struct {
	URL   string `json:"url"`
	Group string `json:"group"`
	Token string `json:"token"`
	Kinds []Kind `json:"kinds"` // empty: all
	// Part is the share of the bounds that the client uses, from 0 to 1. 0 means the full bounds.
	Part float64 `json:"part,omitempty"`
	// Victims are keys of instances of other groups, <group>.<instance>.
	Victims []string `json:"victims,omitempty"`
}

// env is the variable that holds the configuration of a process.
const env = "E2E_HOSTILE"

// Env returns the environment variable for a process that calls Main.
func (c Config) Env() string {
	data, err := json.Marshal(c)
	if err != nil {
		panic(err) // every Config can be encoded
	}
	return env + "=" + string(data)
}

// Main runs a client with the configuration from the environment until ctx ends, and returns the exit code. It prints the line
// "attacking" when all connections are open.
func Main(ctx context.Context) int {
	var c Config
	if err := json.Unmarshal([]byte(os.Getenv(env)), &c); err != nil {
		fmt.Fprintln(os.Stderr, "read", env+":", err)
		return 2
	}
	sent, err := Run(ctx, c, func() { fmt.Println("attacking") })
	fmt.Println("sent", sent)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Run attacks until ctx ends, and returns the number of messages and log-ins. begun is called when the first connections are open.
func Run(ctx context.Context, c Config, begun func()) (sent int64, err error) {
	if len(c.Kinds) == 0 {
		c.Kinds = Kinds()
		if len(c.Victims) == 0 {
			c.Kinds = slices.DeleteFunc(c.Kinds, func(k Kind) bool { return k == Answers })
		}
	}
	if c.Part == 0 {
		c.Part = 1
	}
	a := &attack{
		Config: c, bytes: rate.NewLimiter(rate.Limit(c.Part*bytesPerSecond), 2<<20), messages: rate.NewLimiter(rate.Limit(c.Part*messagesPerSecond), 500),
		places: make(chan struct{}, connections),
	}
	first, err := a.connect("mallory-0")
	if err != nil {
		return 0, fmt.Errorf("the hostile client cannot log in: %w", err)
	}
	first.Close()
	begun()
	var wg sync.WaitGroup
	for _, k := range c.Kinds {
		// The connections are shared evenly. Each one publishes on its own, so that a server that slows one down does not slow down
		// the others.
		for n := range max(1, min(4, connections/2/len(c.Kinds))) {
			wg.Go(func() { a.repeat(ctx, k, n) })
		}
	}
	wg.Wait()
	return a.sent(), nil
}

type attack struct {
	Config
	bytes    *rate.Limiter
	messages *rate.Limiter
	places   chan struct{} // one for each open connection

	mu    sync.Mutex
	count int64 // guarded by mu
}

func (a *attack) sent() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count
}

// connect logs in as an instance. It ignores later errors from the server, because the attack provokes them.
func (a *attack) connect(instance string, more ...nats.Option) (*nats.Conn, error) {
	return nats.Connect(a.URL, append([]nats.Option{
		nats.Token(a.Token), nats.Name(a.Group + "." + instance), nats.CustomInboxPrefix(natsauth.InboxPrefix(a.Group)), nats.NoReconnect(),
		nats.Timeout(10 * time.Second), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, more...)...)
}

// repeat attacks over one connection at a time. It opens a new one whenever the server has closed the last one.
func (a *attack) repeat(ctx context.Context, k Kind, n int) {
	for try := 0; ctx.Err() == nil; try++ {
		select {
		case a.places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		err := a.once(ctx, k, fmt.Sprintf("mallory-%s-%d-%d", strings.ReplaceAll(string(k), " ", "-"), n, try))
		<-a.places
		if err != nil && a.messages.Wait(ctx) != nil { // a refused log-in is repeated at the rate of messages
			return
		}
	}
}

// once attacks over one connection until it fails.
func (a *attack) once(ctx context.Context, k Kind, instance string) error {
	if k == Logins {
		return a.logins(ctx)
	}
	nc, err := a.connect(instance)
	if err != nil {
		return err
	}
	defer nc.Close()
	for i := 0; ctx.Err() == nil; i++ {
		m := a.message(k, instance, i)
		if a.messages.Wait(ctx) != nil || a.bytes.WaitN(ctx, len(m.Data)+1) != nil {
			return nil
		}
		if err := nc.PublishMsg(m); err != nil {
			return err
		}
		if i%16 == 15 {
			if err := nc.FlushTimeout(10 * time.Second); err != nil {
				return err
			}
		}
		a.counted()
		if k == Heartbeats && i == 3 {
			return nil // a new name needs a new log-in
		}
	}
	return nil
}

func (a *attack) counted() {
	a.mu.Lock()
	a.count++
	a.mu.Unlock()
}

// logins logs in with right and wrong tokens.
func (a *attack) logins(ctx context.Context) error {
	for i := 0; a.messages.Wait(ctx) == nil; i++ {
		var more []nats.Option
		if i%2 == 1 {
			more = append(more, nats.Token("bfg_"+strconv.Itoa(rand.Int())))
		}
		nc, err := a.connect(fmt.Sprintf("mallory-%d", rand.Int()), more...)
		a.counted()
		switch {
		case err == nil:
			nc.Close()
		case !errors.Is(err, nats.ErrAuthorization):
			return err
		}
	}
	return nil
}

// unreadable is invalid JSON of the maximum size of a message.
var unreadable = strings.Repeat("{\"v\":1,\"junk\":[", 1<<16-64)

func (a *attack) message(k Kind, instance string, i int) *nats.Msg {
	switch k {
	case JunkResults:
		return &nats.Msg{Subject: wire.ResultSubject(a.Group), Data: []byte(unreadable)}
	case UnknownResults:
		return &nats.Msg{Subject: wire.ResultSubject(a.Group), Data: unknown(instance, 250)}
	case SmallResults:
		return &nats.Msg{Subject: wire.ResultSubject(a.Group), Data: unknown(instance, 1)}
	case Logs:
		return &nats.Msg{Subject: wire.LogSubject(a.Group), Data: lines(instance)}
	case JunkLogs:
		return &nats.Msg{Subject: wire.LogSubject(a.Group), Data: []byte(`{"v":1,"run_id":"none","attempt":-1}`)}
	case Heartbeats:
		name := instance
		if i > 0 {
			name += "-" + strconv.Itoa(i) // a name that did not log in
		}
		return &nats.Msg{Subject: "$KV." + wire.BucketInstances + "." + a.Group + "." + name, Data: a.heartbeat(name, 15<<10+i%2*45<<10)}
	case Answers:
		victim := a.Victims[i%len(a.Victims)]
		return &nats.Msg{Subject: wire.ResultSubject(a.Group), Reply: wire.InstanceSubject(victim), Data: []byte(`{"v":1}`)}
	case Logins:
	}
	panic("no messages of kind " + string(k))
}

// unknown returns a message with n results of runs that do not exist.
func unknown(instance string, n int) []byte {
	now := wire.Time{Time: time.Now()}
	m := wire.Results{V: wire.Version, Load: wire.Load{Capacity: 1 << 30, Seq: 1}}
	for range n {
		m.Results = append(m.Results, wire.Result{Instance: instance, BootID: "mallory", RunID: domain.NewRunID(now.Time).String(), Attempt: 1,
			Bind: 1, Outcome: wire.Failed, Reason: "handler_error", Message: strings.Repeat("m", 1000), StartedAt: now, FinishedAt: now})
	}
	return wire.Encode(m)
}

// lines returns a message with lines of a run that does not exist.
func lines(instance string) []byte {
	now := wire.Time{Time: time.Now()}
	m := wire.Logs{V: wire.Version, Instance: instance, RunID: domain.NewRunID(now.Time).String(), Attempt: 1}
	for n := range 500 {
		m.Lines = append(m.Lines, wire.LogLine{N: int64(n + 1), At: now, Level: "info", Text: strings.Repeat("x", 1000)})
	}
	return wire.Encode(m)
}

func (a *attack) heartbeat(name string, size int) []byte {
	return wire.Encode(wire.Heartbeat{V: wire.Version, Instance: name, Group: a.Group, BootID: "mallory", Beat: 1, Handlers: []string{"*"},
		Capacity: 1 << 20, Host: strings.Repeat("h", size)})
}
