package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"
)

// gatewayGroup is the group whose runs go through a gateway to stubs.
const gatewayGroup = "bench-xxl-job"

// plainPath and viaGateway are the columns of the mode gateway in the report, in place of the baseline and the engine.
const (
	plainPath  = "plain path"
	viaGateway = "gateway"
)

// gateway measures the same load on two ways: with Belfry's own executors, and through a gateway to as many executors of XXL-JOB.
func (b *Bench) gateway(ctx context.Context) error {
	if err := b.servers.openGateway(ctx, b.Config.Capacity); err != nil {
		return err
	}
	what := "gateway, " + b.rateName()
	b.report.columns = map[string][2]string{what: {plainPath, viaGateway}}
	to := func(group string) func(from time.Time) load {
		return func(from time.Time) load {
			l := b.rateLoad(from)
			for i := range l.Sets {
				l.Sets[i].Group = group
			}
			return l
		}
	}
	return b.inTurn(ctx, what,
		side{sideBaseline, plainPath, b.Config.Baseline, func(ctx context.Context) (Figures, error) {
			e := engineRun{rig: b.rig, of: to(group), executors: b.Config.Addresses}
			return e.run(ctx)
		}},
		side{sideEngine, viaGateway, b.Config.Engine, func(ctx context.Context) (Figures, error) {
			if err := b.servers.forgetExecutors(ctx); err != nil {
				return nil, err
			}
			e := engineRun{rig: b.rig, of: to(gatewayGroup), gateway: true}
			return e.run(ctx)
		}})
}

// openGateway creates the group of the stubs. They have no access token.
func (s *servers) openGateway(ctx context.Context, capacity int) error {
	if err := s.createGroup(ctx, gatewayGroup); err != nil {
		return err
	}
	_, err := s.db.Exec(ctx, `INSERT INTO gateway_groups (group_name, app_name, networks, capacity) VALUES ($1, $1, '{127.0.0.0/8}', $2)`, gatewayGroup, capacity)
	return err
}

// forgetExecutors removes what an earlier measurement has left of its gateway.
func (s *servers) forgetExecutors(ctx context.Context) error {
	for _, sql := range []string{`DELETE FROM gateway_addresses`, `TRUNCATE gateway_sends`} {
		if _, err := s.db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("remove the executors of an earlier measurement: %w", err)
		}
	}
	return nil
}

// startGateway starts a gateway, and stubs that register there.
func (e *engineRun) startGateway(ctx context.Context) error {
	g, err := e.startPart(ctx, Order{Part: partGateway, NATS: e.servers.systemURL(), Dir: filepath.Join(e.servers.dir, "callbacks")})
	if err != nil {
		return err
	}
	var url string
	data, err := g.ask(ctx, "take")
	if err == nil {
		err = json.Unmarshal(data, &url)
	}
	if err != nil {
		return err
	}
	c, err := e.startPart(ctx, Order{Part: partStub, Gateway: url, Stubs: e.config.Addresses})
	if err == nil {
		e.execs = append(e.execs, c)
	}
	return err
}

// arrivalChunk is the number of arrivals whose due instants one query reads.
const arrivalChunk = 10_000

// arrivalLateness adds how late requests arrived at the stubs. The protocol does not carry the due instant, so the sends in the database
// say which run a request belongs to.
func (e *engineRun) arrivalLateness(ctx context.Context, f Figures) error {
	var h Histogram
	for _, c := range e.execs {
		data, err := c.ask(ctx, "take")
		if err != nil {
			return err
		}
		var all arrivals
		if err := json.Unmarshal(data, &all); err != nil {
			return err
		}
		if len(all.LogIDs) != len(all.AtUS) {
			return fmt.Errorf("the part %s has recorded %d requests and %d instants", c.name, len(all.LogIDs), len(all.AtUS))
		}
		for i := 0; i < len(all.LogIDs); i += arrivalChunk {
			to := min(i+arrivalChunk, len(all.LogIDs))
			if err := e.addArrivals(ctx, &h, all.LogIDs[i:to], all.AtUS[i:to]); err != nil {
				return err
			}
		}
		f.set("requests", float64(len(all.LogIDs)+all.Left))
	}
	f.percentiles("lateness", h.Percentiles())
	return nil
}

func (e *engineRun) addArrivals(ctx context.Context, h *Histogram, logIDs, atUS []int64) error {
	rows, err := e.servers.db.Query(ctx, `
		SELECT w.at_us, r.due_at
		  FROM (SELECT unnest($1::bigint[]) AS log_id, unnest($2::bigint[]) AS at_us) w
		  JOIN gateway_sends s ON s.log_id = w.log_id
		  JOIN runs_history r ON r.id = s.run_id`, logIDs, atUS)
	if err != nil {
		return fmt.Errorf("read the sends of the gateway: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var us int64
		var due time.Time
		if err := rows.Scan(&us, &due); err != nil {
			return err
		}
		h.Add(time.UnixMicro(us).Sub(due))
	}
	return rows.Err()
}
