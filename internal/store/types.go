package store

import (
	"github.com/belfryhq/belfry/internal/engine"
)

// These values are exchanged between the store and the roles. They are defined in domain, because the roles do not
// import the store.
type (
	Admission    = engine.Admission
	Admitted     = engine.Admitted
	BoundBoot    = engine.BoundBoot
	Kill         = engine.KillResult
	LogChunk     = engine.LogChunk
	Planned      = engine.Planned
	Refusal      = engine.Refusal
	SettleResult = engine.SettleResult
	ShardBinding = engine.ShardBinding
	Started      = engine.Started
	Unassigned   = engine.Unassigned
	Waiting      = engine.WaitingRun
	WaitingKey   = engine.WaitingKey
)
