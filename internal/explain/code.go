package explain

// Code names one explanation. The codes are a closed list, see Codes.
type Code string

// Why a run waits.
const (
	NoInstance      Code = "no_instance"      // no live instance in the group
	NoHandler       Code = "no_handler"       // no live instance offers the handler, or runs scripts in the language
	Draining        Code = "draining"         // the instances that could take the run are shutting down
	Unfit           Code = "unfit"            // the instances that could take the run have reported a problem
	NoRoom          Code = "no_room"          // the instances have no free slot
	PinnedGone      Code = "pinned_gone"      // the only instance that may take the run is gone, or cannot run it
	NATSUnavailable Code = "nats_unavailable" // the dispatcher has no connection to NATS
	BehindOthers    Code = "behind_others"    // runs that wait for the same slots come first
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

// Why an instance gets no runs now.
const (
	InstanceDraining        Code = "instance_draining"
	InstanceFull            Code = "instance_full"             // it has no free slot
	InstanceOutOfFiles      Code = "instance_out_of_files"     // its process has too few file descriptors
	InstanceSpoolFull       Code = "instance_spool_full"       // there is no room for another result on its disk
	InstanceSpoolUnwritable Code = "instance_spool_unwritable" // it cannot write results to its disk
	InstanceUnfit           Code = "instance_unfit"            // it gives another reason
	InstanceSilent          Code = "instance_silent"           // its last heartbeat is too old for an offer
	InstanceRefused         Code = "instance_refused"          // it refused an offer although it seemed to have room
	InstanceOffersNothing   Code = "instance_offers_nothing"   // it has neither handlers nor script languages
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
	NotExpanded         Code = "not_expanded" // a broadcast whose shards do not exist yet
)

// Why fire times were missed.
const (
	NoScheduler  Code = "no_scheduler"  // no scheduler served them in time
	GroupPaused  Code = "group_paused"  // they were due in a pause of the group; the job may have been paused too
	JobPaused    Code = "job_paused"    // they were due in a pause of the job itself
	Unexplained  Code = "unexplained"   // the fire check found neither a run nor an entry
	ClockStepped Code = "clock_stepped" // the database's clock stepped over them
	PostgresAway Code = "postgres_away" // Postgres did not answer, or did not complete the planning
	Restored     Code = "restored"      // the database was restored to an earlier state, so they may have run
)

// Faults of servers and roles. Their texts are those of the alerts.
const (
	ServerUnavailable    Code = "server_unavailable"
	JetStreamUnavailable Code = "jetstream_unavailable"
	NATSServersSilent    Code = "nats_servers_silent" // some servers of a cluster
	PostgresBlocked      Code = "postgres_blocked"    // by another client's transaction
	ConnectionsTaken     Code = "connections_taken"
	RoleMissing          Code = "role_missing"      // no process of the role is up, or none of them works
	ProcessesMissing     Code = "processes_missing" // a role has fewer processes than before
)

// How the engine ended an attempt, or a run that had not started. These are parts of a run's message, see Notes.
const (
	EarlierUnfinished Code = "earlier_unfinished"  // block policy discard_later: another run of the job was unfinished
	TooManyHeld       Code = "too_many_held"       // block policy serial: the job has its maximum of held runs
	CoveredBy         Code = "covered_by"          // block policy cover_early: a newer run of the job came due
	KilledBy          Code = "killed_by"           // a user requested the end
	JobDeleted        Code = "job_deleted"         // the job was deleted before the run started
	NeverStarted      Code = "never_started"       // the attempt had not started when it was killed
	NotTaken          Code = "not_taken"           // no instance took the run before its start deadline
	ScriptNotTaken    Code = "script_not_taken"    // the same for a script
	ShardInstanceGone Code = "shard_instance_gone" // a shard of a broadcast, whose instance is gone
	OfferTooLarge     Code = "offer_too_large"     // no message can carry the offer
	InstanceDied      Code = "instance_died"       // the instance of the attempt died
	StartBarred       Code = "start_barred"        // the instance will not start an attempt that was recorded as running
	AttemptUnknown    Code = "attempt_unknown"     // the instance does not know an attempt that was recorded as running
	ResultLost        Code = "result_lost"         // the instance has finished the attempt, and its result is gone
	OutputLost        Code = "output_lost"         // the instance remembers only the outcome
	NoReport          Code = "no_report"           // no report came within the grace period after the timeout
	ResultRefused     Code = "result_refused"      // Postgres refused the result, which is a dead letter now
)

// What changed between the last success and the last failure of a failing job.
const (
	JobEdited       Code = "job_edited"
	ScriptEdited    Code = "script_edited"
	ExecutorChanged Code = "executor_changed" // another version of the executor
	InstanceChanged Code = "instance_changed"
)

// Text is the code of an explanation without a Note, such as one that an older release stored, and of a handler's own words.
// Its text is the stored sentence.
const Text Code = "text"

// Codes returns all codes, in the order of the constants.
func Codes() []Code {
	return []Code{
		NoInstance, NoHandler, Draining, Unfit, NoRoom, PinnedGone, NATSUnavailable, BehindOthers, AskingInstances, NoAnswer, AllBusy, Refused,
		InstanceAbsent, NotStarted, StartFailed, EarlierRun, CoveredRun,
		InstanceDraining, InstanceFull, InstanceOutOfFiles, InstanceSpoolFull, InstanceSpoolUnwritable, InstanceUnfit, InstanceSilent,
		InstanceRefused, InstanceOffersNothing,
		AskedByName, OnlyInstance, LeastLoaded, First, Last, RoundRobin, Random, ConsistentHash, LeastFrequentlyUsed, LeastRecentlyUsed,
		NotUsedYet, Failover, Busyover, BroadcastShard, NotExpanded,
		NoScheduler, GroupPaused, JobPaused, Unexplained, ClockStepped, PostgresAway, Restored,
		ServerUnavailable, JetStreamUnavailable, NATSServersSilent, PostgresBlocked, ConnectionsTaken, RoleMissing, ProcessesMissing,
		EarlierUnfinished, TooManyHeld, CoveredBy, KilledBy, JobDeleted, NeverStarted, NotTaken, ScriptNotTaken, ShardInstanceGone,
		OfferTooLarge, InstanceDied, StartBarred, AttemptUnknown, ResultLost, OutputLost, NoReport, ResultRefused,
		JobEdited, ScriptEdited, ExecutorChanged, InstanceChanged,
		Text,
	}
}
