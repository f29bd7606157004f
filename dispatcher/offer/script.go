package offer

import (
	"context"
	"slices"

	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
)

// handScripts sends the code of accepted scripts to an instance that requested it. If the message is lost, the instance hands the
// attempt back and requests the code again after the next offer. handScripts sends only code of scripts that were just offered,
// because an instance can request any digest.
func (s *Sender) handScripts(ctx context.Context, b peer.Boot, runs []engine.LiveRun, lacking []string) {
	keys := make([]engine.Due, len(runs))
	for i, r := range runs {
		keys[i] = engine.Due{JobID: r.JobID, JobVersion: r.JobVersion}
	}
	defs, err := s.Store.Definitions(ctx, keys)
	if err != nil {
		s.warn(ctx, "cannot read the definitions of offered scripts, the instance asks again", err)
		return
	}
	sent := make(map[string]bool, len(lacking))
	for i := range runs {
		def := defs.Of(runs[i].JobID, runs[i].JobVersion)
		if def == nil || def.Script == nil || sent[def.Script.SHA256] || !slices.Contains(lacking, def.Script.SHA256) {
			continue
		}
		sent[def.Script.SHA256] = true
		if err := s.handScript(ctx, b, def); err != nil {
			s.Log.WarnContext(ctx, "cannot send the code of a script, the instance asks again", "group", b.Group, "instance", b.Instance,
				"job_id", def.JobID, "script", def.Script.Version, "err", err)
		}
	}
}

func (s *Sender) handScript(ctx context.Context, b peer.Boot, def *engine.Definition) error {
	code, err := s.Store.ScriptCode(ctx, def.JobID, def.Script.Version)
	if err != nil {
		return err
	}
	reply, err := s.Peers.Ask(ctx, b.Group, b.Instance, wire.Control{Op: wire.OpScript, SHA256: def.Script.SHA256, Code: []byte(code)})
	if err == nil && reply.Error != "" {
		err = domain.NewError(domain.Unavailable, "the instance says: "+reply.Error)
	}
	return err
}
