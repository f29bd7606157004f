package domain

import (
	"encoding/json"
	"fmt"
)

// GroupLimits bounds how much one executor group may use of the resources that all groups share. docs/limits.md says what
// happens beyond each limit.
type GroupLimits struct {
	MaxInstances      int   `json:"max_instances"`         // instance names with a live heartbeat
	MaxConnections    int   `json:"max_connections"`       // NATS connections with the group's token
	MaxJobs           int   `json:"max_jobs"`              // jobs, enabled or not
	MaxLiveRuns       int   `json:"max_live_runs"`         // runs that are not final
	MaxFiresPerMinute int   `json:"max_fires_per_minute"`  // fire times that become runs, by the minute of the fire time
	MaxLogBytesPerDay int64 `json:"max_log_bytes_per_day"` // bytes of log text, by UTC day
	MaxScriptVersions int   `json:"max_script_versions"`   // stored versions of all scripts together
}

// DefaultGroupLimits returns the limits of a group for which an administrator has set no others.
func DefaultGroupLimits() GroupLimits {
	return GroupLimits{
		MaxInstances:      1000,
		MaxConnections:    2000,
		MaxJobs:           50_000,
		MaxLiveRuns:       500_000,
		MaxFiresPerMinute: 600_000,
		MaxLogBytesPerDay: 50 << 30,
		MaxScriptVersions: 10_000,
	}
}

// GroupLimitsFrom returns the limits of a group, given those that an administrator has set, as JSON.
func GroupLimitsFrom(own []byte) (GroupLimits, error) {
	l := DefaultGroupLimits()
	if err := json.Unmarshal(own, &l); err != nil {
		return l, WrapError(Internal, "read the limits of a group", err)
	}
	return l, nil
}

// maxLimit is the highest value of a limit that counts objects. It keeps sums of limits far from an overflow.
const maxLimit = 1_000_000_000

// Check adds a fault for each limit that is out of range, below the given location.
func (l GroupLimits) Check(f *Faults, location string) {
	for _, v := range []struct {
		name        string
		value, most int64
	}{
		{"max_instances", int64(l.MaxInstances), 100_000},
		{"max_connections", int64(l.MaxConnections), 1_000_000},
		{"max_jobs", int64(l.MaxJobs), maxLimit},
		{"max_live_runs", int64(l.MaxLiveRuns), maxLimit},
		{"max_fires_per_minute", int64(l.MaxFiresPerMinute), maxLimit},
		{"max_log_bytes_per_day", l.MaxLogBytesPerDay, 1 << 50},
		{"max_script_versions", int64(l.MaxScriptVersions), maxLimit},
	} {
		if v.value < 1 || v.value > v.most {
			f.Add(location+"."+v.name, fmt.Sprintf("must be between 1 and %d", v.most))
		}
	}
}

// GroupLimitsChange is a change of some limits. A field that is nil keeps its value.
type GroupLimitsChange struct {
	MaxInstances      *int   `json:"max_instances,omitempty"`
	MaxConnections    *int   `json:"max_connections,omitempty"`
	MaxJobs           *int   `json:"max_jobs,omitempty"`
	MaxLiveRuns       *int   `json:"max_live_runs,omitempty"`
	MaxFiresPerMinute *int   `json:"max_fires_per_minute,omitempty"`
	MaxLogBytesPerDay *int64 `json:"max_log_bytes_per_day,omitempty"`
	MaxScriptVersions *int   `json:"max_script_versions,omitempty"`
}

// Apply returns the limits after the change.
func (c GroupLimitsChange) Apply(l GroupLimits) GroupLimits {
	apply(&l.MaxInstances, c.MaxInstances)
	apply(&l.MaxConnections, c.MaxConnections)
	apply(&l.MaxJobs, c.MaxJobs)
	apply(&l.MaxLiveRuns, c.MaxLiveRuns)
	apply(&l.MaxFiresPerMinute, c.MaxFiresPerMinute)
	apply(&l.MaxLogBytesPerDay, c.MaxLogBytesPerDay)
	apply(&l.MaxScriptVersions, c.MaxScriptVersions)
	return l
}

func apply[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// Usage is how much of a limit is used. Used may be higher than Limit, for example after an administrator has lowered the
// limit.
type Usage struct {
	Used  int64 `json:"used"`
	Limit int64 `json:"limit"`
}

// GroupUsage is the usage of a group's limits.
type GroupUsage struct {
	Jobs           Usage `json:"jobs"`
	LiveRuns       Usage `json:"live_runs" doc:"Counted every few seconds"`
	FiresPerMinute Usage `json:"fires_per_minute" doc:"The maximum number of fires per minute, summed over the group's enabled jobs"`
	LogBytesToday  Usage `json:"log_bytes_today" doc:"Bytes of log text since midnight UTC"`
	ScriptVersions Usage `json:"script_versions"`
	Instances      Usage `json:"instances" doc:"Live instances"`
}

// NamedUsage is a usage and its name in the API and in metrics.
type NamedUsage struct {
	Name string
	Usage
}

// All returns the usages by name, in the order of the fields.
func (u *GroupUsage) All() []NamedUsage {
	return []NamedUsage{
		{"jobs", u.Jobs}, {"live_runs", u.LiveRuns}, {"fires_per_minute", u.FiresPerMinute}, {"log_bytes_today", u.LogBytesToday},
		{"script_versions", u.ScriptVersions}, {"instances", u.Instances},
	}
}
