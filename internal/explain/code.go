package explain

// Code names one explanation. The codes are a closed list, see Codes.
type Code string

// Why a run waits.
const (
	NoInstance      Code = "no_instance"      // no live instance in the group
	NoHandler       Code = "no_handler"       // no live instance offers the handler, or runs scripts in the language
	Draining        Code = "draining"         // the instances that could take the run are shutting down
	NoRoom          Code = "no_room"          // the instances have no free slot
	PinnedGone      Code = "pinned_gone"      // the only instance that may take the run is not there, or cannot run it
	NATSUnavailable Code = "nats_unavailable" // the dispatcher has no connection to NATS
	BehindOthers    Code = "behind_others"    // runs that wait for the same room come first
	AskingInstances Code = "asking_instances" // the route asks the instances first
	NoAnswer        Code = "no_answer"        // no instance answered the question
	AllBusy         Code = "all_busy"         // no instance is idle for the job
	Refused         Code = "refused"          // an instance refused the offer
	InstanceAbsent  Code = "instance_absent"  // the instance was not there to receive the offer
	NotStarted      Code = "not_started"      // an instance says that it will not start the run
	StartFailed     Code = "start_failed"     // the instance had accepted the run and could not start it
	EarlierRun      Code = "earlier_run"      // block policy serial: an earlier run holds the slot
	CoveredRun      Code = "covered_run"      // block policy cover_early: the covered run has not ended yet
)

// How a run was routed.
const (
	AskedByName         Code = "asked_by_name"
	OnlyInstance        Code = "only_instance"
	LeastLoaded         Code = "least_loaded"
	First               Code = "first"
	Last                Code = "last"
	RoundRobin          Code = "round_robin"
	Random              Code = "random"
	ConsistentHash      Code = "consistent_hash"
	LeastFrequentlyUsed Code = "least_frequently_used"
	LeastRecentlyUsed   Code = "least_recently_used"
	NotUsedYet          Code = "not_used_yet" // least_recently_used, and the instance was never used
	Failover            Code = "failover"
	Busyover            Code = "busyover"
	BroadcastShard      Code = "broadcast_shard"
	NotExpanded         Code = "not_expanded" // a broadcast without its shards yet
)

// Why fire times were missed.
const (
	NoScheduler Code = "no_scheduler" // no scheduler served them in time
	GroupPaused Code = "group_paused" // they were due in a pause of the group
	Unexplained Code = "unexplained"  // the fire check found neither a run nor an entry
)

// Text is the code of an explanation without a Note, such as one that an older release stored. Its text is the stored
// sentence.
const Text Code = "text"

// Codes returns all codes, in the order of the constants.
func Codes() []Code {
	return []Code{
		NoInstance, NoHandler, Draining, NoRoom, PinnedGone, NATSUnavailable, BehindOthers, AskingInstances, NoAnswer, AllBusy, Refused,
		InstanceAbsent, NotStarted, StartFailed, EarlierRun, CoveredRun,
		AskedByName, OnlyInstance, LeastLoaded, First, Last, RoundRobin, Random, ConsistentHash, LeastFrequentlyUsed, LeastRecentlyUsed,
		NotUsedYet, Failover, Busyover, BroadcastShard, NotExpanded,
		NoScheduler, GroupPaused, Unexplained,
		Text,
	}
}
