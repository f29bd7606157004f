package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"

	"github.com/belfryhq/belfry/internal/config"
)

// The parts of a measurement. Each part is a separate process, so that its CPU time and memory are known.
const (
	partNATS       = "nats"
	partScheduler  = "scheduler"
	partDispatcher = "dispatcher"
	partExecutor   = "executor"
	partPipeline   = "pipeline"  // of the baseline: inserts, updates, offers and settles
	partResponder  = "responder" // of the baseline: its executor
	partConsole    = "console"
	partStandalone = "standalone"
	partGateway    = "gateway"
	partStub       = "stub"     // executors that speak the protocol of XXL-JOB
	partPostgres   = "postgres" // no process of this binary
)

// Order tells a part what to run. It is the first line of the part's standard input, as JSON. It contains passwords, so
// it is neither an argument nor an environment variable. The part ends when its standard input is closed, at the latest
// when its parent ends.
type Order struct {
	Part     string `json:"part"`
	Database string `json:"database_url,omitempty"`
	NATS     string `json:"nats_url,omitempty"`
	Dir      string `json:"dir,omitempty"`      // nats: its storage; executor, gateway: its spool; standalone: its data
	Password string `json:"password,omitempty"` // nats: for the system user and the executors
	Name     string `json:"name,omitempty"`     // executor: its instance
	Capacity int    `json:"capacity,omitempty"` // executor
	Gateway  string `json:"gateway,omitempty"`  // stub: where it registers
	Stubs    int    `json:"stubs,omitempty"`    // stub: the number of its executors
	Profile  string `json:"profile,omitempty"`  // directory for profiles
	Load     *load  `json:"load,omitempty"`     // pipeline
}

// ask is any later line of the standard input: a request to the part.
type ask struct {
	Do string `json:"do"` // "take", "profile", "unprofile"
}

// reply is a line of a part's standard output. The first line says that the part is ready; then each ask has one reply.
type reply struct {
	Event string          `json:"event"`
	Error string          `json:"error,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
}

// Roles runs the roles of Belfry until ctx ends.
type Roles interface {
	BenchScheduler(ctx context.Context, database, nats config.URL) error
	BenchDispatcher(ctx context.Context, database, nats config.URL) error
	BenchConsole(ctx context.Context, database, nats config.URL) error
	BenchStandalone(ctx context.Context, database config.URL, dir string) error
	// BenchGateway calls ready with the URL at which executors register.
	BenchGateway(ctx context.Context, database, nats config.URL, dir string, ready func(url string)) error
}

// part is the state of a process that runs a part.
type part struct {
	order Order
	ready func()                          // sends the reply "ready"
	take  func() (json.RawMessage, error) // answers "take"; set before ready is called
}

// RunPart runs a part: it reads the order from in, runs the part that the order names, and answers requests until in
// ends.
func RunPart(ctx context.Context, in io.Reader, out io.Writer, roles Roles) error {
	lines := bufio.NewReader(in)
	var p part
	if err := readLine(lines, &p.order); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	say := func(r reply) {
		mu.Lock()
		defer mu.Unlock()
		// If the parent has ended, in is closed too, which ends this process.
		_ = json.NewEncoder(out).Encode(r)
	}
	p.ready = sync.OnceFunc(func() { say(reply{Event: "ready"}) })
	p.take = func() (json.RawMessage, error) { return json.RawMessage("null"), nil }
	go func() {
		defer cancel()
		for {
			var a ask
			if err := readLine(lines, &a); err != nil {
				return
			}
			data, err := p.answer(a)
			r := reply{Event: a.Do, Data: data}
			if err != nil {
				r.Error = err.Error()
			}
			say(r)
		}
	}()
	return p.run(ctx, roles)
}

func (p *part) run(ctx context.Context, roles Roles) error {
	switch p.order.Part {
	case partNATS:
		return p.runNATS(ctx)
	case partExecutor:
		return p.runExecutor(ctx)
	case partResponder:
		return p.runResponder(ctx)
	case partPipeline:
		return p.runPipeline(ctx)
	case partStub:
		return p.runStub(ctx)
	case partGateway:
		return roles.BenchGateway(ctx, config.URL(p.order.Database), config.URL(p.order.NATS), p.order.Dir, func(url string) {
			p.take = func() (json.RawMessage, error) { return json.Marshal(url) }
			p.ready()
		})
	case partScheduler:
		p.ready()
		return roles.BenchScheduler(ctx, config.URL(p.order.Database), config.URL(p.order.NATS))
	case partDispatcher:
		p.ready()
		return roles.BenchDispatcher(ctx, config.URL(p.order.Database), config.URL(p.order.NATS))
	case partConsole:
		p.ready()
		return roles.BenchConsole(ctx, config.URL(p.order.Database), config.URL(p.order.NATS))
	case partStandalone:
		p.ready()
		return roles.BenchStandalone(ctx, config.URL(p.order.Database), p.order.Dir)
	}
	return fmt.Errorf("unknown part %q", p.order.Part)
}

func readLine(r *bufio.Reader, into any) error {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, into)
}

func (p *part) answer(a ask) (json.RawMessage, error) {
	switch a.Do {
	case "take":
		return p.take()
	case "profile":
		return nil, p.startProfile()
	case "unprofile":
		return nil, p.stopProfile()
	}
	return nil, fmt.Errorf("unknown request %q", a.Do)
}

func (p *part) profilePath(kind string) string {
	name := p.order.Part
	if p.order.Name != "" {
		name = p.order.Name
	}
	return filepath.Join(p.order.Profile, name+"."+kind+".pprof")
}

// startProfile starts the CPU profile of this process.
func (p *part) startProfile() error {
	f, err := os.Create(p.profilePath("cpu"))
	if err != nil {
		return err
	}
	return pprof.StartCPUProfile(f)
}

// stopProfile writes the profiles. The profile of allocations covers the whole life of the process.
func (p *part) stopProfile() error {
	pprof.StopCPUProfile()
	f, err := os.Create(p.profilePath("allocs"))
	if err != nil {
		return err
	}
	runtime.GC() // the profile shows the state at the last collection
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
