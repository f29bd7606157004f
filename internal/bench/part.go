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

// The parts that a measurement is made of. Each is a process of its own, so that what it uses is known.
const (
	partNATS       = "nats"
	partScheduler  = "scheduler"
	partDispatcher = "dispatcher"
	partExecutor   = "executor"
	partPipeline   = "pipeline"  // the baseline's insert, update, offer and settling
	partResponder  = "responder" // the baseline's executor
	partStandalone = "standalone"
	partPostgres   = "postgres" // no process of this binary
)

// Order is what a part is told to be: the first line of its standard input, in JSON. It holds passwords, which is why
// it is no argument and no environment. The part ends when its standard input does, so at the latest with its parent.
type Order struct {
	Part     string `json:"part"`
	Database string `json:"database_url,omitempty"`
	NATS     string `json:"nats_url,omitempty"`
	Dir      string `json:"dir,omitempty"`      // nats: its storage; executor: its spool; standalone: its data
	Password string `json:"password,omitempty"` // nats: of the system side and of executors
	Name     string `json:"name,omitempty"`     // executor: its instance
	Capacity int    `json:"capacity,omitempty"` // executor
	Profile  string `json:"profile,omitempty"`  // directory for profiles
	Load     *load  `json:"load,omitempty"`     // pipeline
}

// ask is a later line: what the part is asked for.
type ask struct {
	Do string `json:"do"` // "take", "profile", "unprofile"
}

// reply is what a part says on its standard output: first that it is ready, then one for each ask.
type reply struct {
	Event string          `json:"event"`
	Error string          `json:"error,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
}

// Roles runs the parts that are Belfry's own roles, until ctx ends.
type Roles interface {
	BenchScheduler(ctx context.Context, database, nats config.URL) error
	BenchDispatcher(ctx context.Context, database, nats config.URL) error
	BenchStandalone(ctx context.Context, database config.URL, dir string) error
}

// part is the running side of a process.
type part struct {
	order Order
	ready func()                          // says that it is ready
	take  func() (json.RawMessage, error) // what "take" answers; set before ready is called
}

// RunPart is the whole life of a part: it reads its order, becomes what it says, and answers what it is asked until
// in ends.
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
		// A parent that is gone has closed in too, which ends this process.
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
	case partScheduler:
		p.ready()
		return roles.BenchScheduler(ctx, config.URL(p.order.Database), config.URL(p.order.NATS))
	case partDispatcher:
		p.ready()
		return roles.BenchDispatcher(ctx, config.URL(p.order.Database), config.URL(p.order.NATS))
	case partStandalone:
		p.ready()
		return roles.BenchStandalone(ctx, config.URL(p.order.Database), p.order.Dir)
	}
	return fmt.Errorf("there is no part %q", p.order.Part)
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
	return nil, fmt.Errorf("a part cannot %q", a.Do)
}

func (p *part) profilePath(kind string) string {
	name := p.order.Part
	if p.order.Name != "" {
		name = p.order.Name
	}
	return filepath.Join(p.order.Profile, name+"."+kind+".pprof")
}

// startProfile profiles this process until stopProfile.
func (p *part) startProfile() error {
	f, err := os.Create(p.profilePath("cpu"))
	if err != nil {
		return err
	}
	return pprof.StartCPUProfile(f)
}

// stopProfile writes the profiles. That of allocations is of the process's whole life.
func (p *part) stopProfile() error {
	pprof.StopCPUProfile()
	f, err := os.Create(p.profilePath("allocs"))
	if err != nil {
		return err
	}
	runtime.GC() // the profile is as of the last collection
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
