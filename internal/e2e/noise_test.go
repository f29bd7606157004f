//go:build unix

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/e2e/rig"
)

// noiseMax is how many lines a process may log in an outage of at most a minute, its end included.
const noiseMax = 40

// While a server is away, each process logs a few lines, River's included, although many of its parts fail many times per second.
func TestOutageNoise(t *testing.T) {
	t.Parallel()
	outageNoise(t, 15*time.Second)
}

// The same for outages of a minute.
func TestScenarioOutageNoise(t *testing.T) {
	long(t)
	outageNoise(t, away)
}

func outageNoise(t *testing.T, away time.Duration) {
	for name, outage := range map[string]struct {
		postgres, nats func(*rig.Proxy)
	}{
		"Postgres refuses connections": {postgres: (*rig.Proxy).Cut},
		"Postgres does not answer":     {postgres: (*rig.Proxy).Blackhole},
		"NATS refuses connections":     {nats: (*rig.Proxy).Cut},
		"NATS does not answer":         {nats: (*rig.Proxy).Blackhole},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			db, throughDB := c.postgresLink()
			bus, throughNATS := c.natsLink(), ""
			throughNATS = c.throughNATS(bus)
			_, host, _ := strings.Cut(c.natsFor, "//")
			c.natsFor = strings.Replace(c.natsFor, host, bus.Addr(), 1)
			watched := []*process{
				c.role("console", []string{throughDB, throughNATS}, "--http", "127.0.0.1:0"),
				c.dispatcher(throughDB, throughNATS), c.scheduler(throughDB, throughNATS), c.executor("i1"),
			}
			for i := range 5 { // work in all parts, with retries and children
				child := c.job(fmt.Sprintf("child-%d", i), handler("echo", "{}"), func(s *domain.JobSpec) { s.Block = domain.BlockParallel })
				c.job(fmt.Sprintf("tick-%d", i), shell("sleep 0.5; exit 1"), retries(1), func(s *domain.JobSpec) {
					s.Schedule = domain.Schedule{Kind: domain.ScheduleCron, Expr: "* * * * * *"}
					s.Block = domain.BlockParallel
					s.Children = []domain.Child{{JobID: child.ID, On: domain.OnAlways}}
				})
			}
			finished := func() int { return queryOne[int](t, c.db, `SELECT count(*) FROM runs_history`) }
			eventually(t, patience, "runs finish", func() bool { return finished() > 20 })

			before := make(map[*process]int)
			for _, p := range watched {
				before[p] = len(p.stderr.snapshot())
			}
			link, fault := db, outage.postgres
			if outage.nats != nil {
				link, fault = bus, outage.nats
			}
			fault(link)
			every(away, 1, func(int) {})
			link.Heal()
			so := finished()
			eventually(t, patience, "runs finish again", func() bool { return finished() > so+20 })
			for _, p := range watched {
				counts := make(map[string]int)
				lines := p.stderr.snapshot()[before[p]:]
				for _, line := range lines {
					var record struct{ Level, Msg string }
					if err := json.Unmarshal([]byte(line), &record); err != nil {
						t.Errorf("%s logged %q", p.name, line)
					}
					counts[record.Level+" "+record.Msg]++
				}
				t.Logf("%s logged %d lines", p.name, len(lines))
				if len(lines) > noiseMax {
					t.Errorf("%s logged %d lines:", p.name, len(lines))
				}
				for _, m := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Compare(counts[b], counts[a]) }) {
					t.Logf("%6d %s", counts[m], m)
				}
			}
		})
	}
}
