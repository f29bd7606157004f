package store

import "github.com/belfryhq/belfry/internal/domain"

// The values that the store exchanges with the roles. They live in domain, as the roles do not know the store.
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
