package conformance

// duty is one line of the report: an obligation of executors, and the case that tests it.
type duty struct {
	id      string
	title   string
	section string // of docs/wire.md
	// An executor may leave out optional duties; see "A minimal executor" in docs/wire.md.
	optional bool
	// clock duties are judged by instants: if the tester's own process stood still meanwhile, the case is repeated.
	clock bool
	// long duties are left out of the short form.
	long bool
	run  func(*stage) string // returns what was seen
}

// plan is a list of duties that are tested one after the other. Plans run side by side.
type plan struct {
	name     string
	capacity int
	// The duties of a bare plan start their processes themselves. If own is set, the plan has its own NATS server.
	bare, own bool
	duties    []duty
}

// The sections of docs/wire.md.
const (
	secRules     = "The wire, version 1"
	secConnect   = "Connecting"
	secHeartbeat = "Heartbeats"
	secBeat      = "The start limit"
	secOffers    = "Offers"
	secRun       = "Starting and ending an attempt"
	secResults   = "Results"
	secLogs      = "Logs"
	secControl   = "Control"
)

// plans returns all duties.
func plans() []plan {
	return []plan{
		{name: "frozen", capacity: 400, duties: frozenDuties()},
		{name: "beats", capacity: 32, duties: beatDuties()},
		{name: "limit", capacity: 32, duties: limitDuties()},
		{name: "memory", capacity: 32, duties: memoryDuties()},
		{name: "again", capacity: 32, duties: againDuties()},
		{name: "nats", bare: true, own: true, duties: outageDuties()},
		{name: "restart", bare: true, duties: restartDuties()},
		{name: "name", bare: true, duties: nameDuties()},
		{name: "overwrite", capacity: 32, duties: overwriteDuties()},
		{name: "term", bare: true, duties: termDuties()},
		{name: "drained", bare: true, duties: drainedDuties()},
		{name: "settled", bare: true, duties: settledDuties()},
		{name: "goodbye", bare: true, duties: goodbyeDuties()},
		{name: "unsettled", bare: true, duties: unsettledDuties()},
		{name: "repeat", capacity: 32, duties: repeatDuties()},
		{name: "start", capacity: 32, duties: startDuties()},
		{name: "offers", capacity: 32, duties: offerDuties()},
		{name: "control", capacity: 32, duties: controlDuties()},
		{name: "results", capacity: 300, duties: resultDuties()},
	}
}
