package dispatcher

import (
	"context"
	"slices"

	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
)

// handScripts sends an instance the code of scripts that it has accepted and does not hold. What is lost here costs a
// delay: the instance hands the attempt back when the code does not come, and asks again with the next offer. Only code
// of what it was just offered is sent, whatever it asks for.
func (d *Dispatcher) handScripts(ctx context.Context, b boot, runs []domain.LiveRun, lacking []string) {
	keys := make([]domain.Due, len(runs))
	for i, r := range runs {
		keys[i] = domain.Due{JobID: r.JobID, JobVersion: r.JobVersion}
	}
	defs, err := d.store.Definitions(ctx, keys)
	if err != nil {
		d.logUnlessDone(ctx, "reading which scripts were offered; they are asked for again", err)
		return
	}
	sent := make(map[string]bool, len(lacking))
	for i := range runs {
		def := defs.Of(runs[i].JobID, runs[i].JobVersion)
		if def == nil || def.Script == nil || sent[def.Script.SHA256] || !slices.Contains(lacking, def.Script.SHA256) {
			continue
		}
		sent[def.Script.SHA256] = true
		if err := d.handScript(ctx, b, def); err != nil {
			d.log.WarnContext(ctx, "handing over a script; it is asked for again", "group", b.group, "instance", b.instance,
				"job_id", def.JobID, "script", def.Script.Version, "err", err)
		}
	}
}

func (d *Dispatcher) handScript(ctx context.Context, b boot, def *domain.Definition) error {
	code, err := d.store.ScriptCode(ctx, def.JobID, def.Script.Version)
	if err != nil {
		return err
	}
	reply, err := d.control(ctx, b.group, b.instance, wire.Control{Op: wire.OpScript, SHA256: def.Script.SHA256, Code: []byte(code)})
	if err == nil && reply.Error != "" {
		err = domain.NewError(domain.Unavailable, "the instance says: "+reply.Error)
	}
	return err
}
