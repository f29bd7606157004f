package offer

import (
	"time"

	"github.com/belfryhq/belfry/dispatcher/peer"
	"github.com/belfryhq/belfry/executor/wire"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/trace"
)

// Limits of one message of offers, in bytes. maxMessage is half of what a NATS server accepts by default. A single offer that is
// larger than maxOffer cannot be sent.
const (
	maxMessage = 512 << 10
	maxOffer   = 960 << 10
)

// typicalOffer is the size of most offers, in bytes.
const typicalOffer = 448

// message is one encoded message of offers.
type message struct {
	runs []engine.LiveRun // a part of the caller's slice, because runs are large to copy
	data []byte
}

// messages encodes the offers of runs that are bound to one boot and splits them into messages. oversized has the ends of runs whose
// offer is too large for a message.
func (s *Sender) messages(b peer.Boot, beat int64, runs []engine.LiveRun, defs engine.Definitions, parents map[domain.RunID]string) (out []message, oversized []engine.Ended) {
	now := s.Store.Now()
	var data []byte
	begin, n := 0, 0 // index of the message's first run, and number of its runs
	cut := func(to int) {
		if n > 0 {
			out = append(out, message{runs[begin:to:to], wire.EndOffers(data)})
		}
		data, begin, n = nil, to, 0
	}
	for i := range runs {
		r := &runs[i]
		def := r.Def
		if def == nil {
			def = defs.Of(r.JobID, r.JobVersion)
		}
		if def == nil {
			cut(i)
			begin = i + 1
			continue
		}
		if n == wire.MaxOffers {
			cut(i)
		}
		if data == nil {
			data = wire.BeginOffers(make([]byte, 0, typicalOffer*min(len(runs)-i+1, wire.MaxOffers)), b.ID, beat)
		}
		o := offerOf(r, def, parents, now)
		if t := s.traceparent(r); t != "" {
			o.Labels = map[string]string{wire.LabelTraceparent: t}
		}
		before := len(data)
		if n > 0 {
			data = append(data, ',')
		}
		from := len(data)
		data = wire.AppendOffer(data, &o)
		switch size := len(data) - from; {
		case size > maxOffer:
			data = data[:before]
			cut(i)
			begin = i + 1
			oversized = append(oversized, s.Recorder.Unsendable(r, size, maxOffer))
			continue
		case n > 0 && len(data) > maxMessage:
			offer := data[from:]
			data = data[:before]
			next := wire.BeginOffers(make([]byte, 0, len(offer)+typicalOffer), b.ID, beat)
			next = append(next, offer...) // a copy, because cut overwrites the bytes
			cut(i)
			data = next
		}
		n++
	}
	cut(len(runs))
	return out, oversized
}

// traceparent returns the trace context for the handler of a run, or "" if no process records the run's trace.
func (s *Sender) traceparent(r *engine.LiveRun) string {
	if s.Tracer != nil {
		return s.Tracer.Traceparent(r)
	}
	if r.Trace == "" {
		return ""
	}
	return trace.Forward(r.Trace)
}

func offerOf(r *engine.LiveRun, def *engine.Definition, parents map[domain.RunID]string, now time.Time) wire.Offer {
	o := wire.Offer{
		RunID: r.ID.String(), Attempt: r.Attempt, Bind: r.Bind, BoundAt: peer.WireTime(r.BoundAt), JobID: int64(r.JobID),
		JobName: def.Name, Group: r.Group, Handler: def.Handler, Param: def.Param, Cause: string(r.Cause),
		FireTime: peer.WireTime(r.FireTime), DueAt: wire.Time{Time: r.DueAt}, Now: wire.Time{Time: now},
		TimeoutMS: def.Timeout.Std().Milliseconds(), Shard: wire.Shard{Total: 1},
	}
	if def.Script != nil {
		o.Script = &wire.Script{Language: def.Script.Language, Version: def.Script.Version, SHA256: def.Script.SHA256}
	}
	if r.Param != nil {
		o.Param = *r.Param
	}
	if r.Shard != nil {
		o.Shard = wire.Shard{Index: r.Shard.Index, Total: r.Shard.Total}
	}
	if r.ParentRunID != nil {
		o.Parent = &wire.Parent{RunID: r.ParentRunID.String(), Output: parents[*r.ParentRunID]}
	}
	return o
}
