package store

import "github.com/belfryhq/belfry/internal/domain"

// These values are exchanged between the store and the roles. They are defined in domain, because the roles do not
// import the store.
type (
	Admission    = domain.Admission
	Admitted     = domain.Admitted
	BoundBoot    = domain.BoundBoot
	Kill         = domain.KillResult
	LogChunk     = domain.LogChunk
	Planned      = domain.Planned
	Refusal      = domain.Refusal
	SettleResult = domain.SettleResult
	ShardBinding = domain.ShardBinding
	Started      = domain.Started
	Unassigned   = domain.Unassigned
	Waiting      = domain.WaitingRun
	WaitingKey   = domain.WaitingKey
)
