// Package attention lists what needs a person: failing jobs, groups without executors, backlogs, missed fire times, alerts that were not delivered,
// and dead letters. It also keeps the acknowledgements of these items.
//
// # Items
//
// Items are computed from the present state, and none is stored. The id of an item is its kind and its key, so it is the same each time:
//
//	kind                      key             needs attention while                                               cause
//	job_failing               the job's id    the enabled job is failing                                          when the failures began
//	group_without_executors   the group       the group has enabled jobs or waiting runs, and no live instance    the absence
//	backlog                   the group       100 runs or more have been held, or waited, for over a minute       the size, in powers of 4
//	missed                    the group       fire times were missed in the last 24 hours                         the newest entry of the ledger
//	alert_undelivered         group:channel   a delivery failed in the last 24 hours                              the newest such alert
//	dead_letters              all             the streams have dead letters                                       the newest letter
//
// Servers and roles that are missing are items too. They are not known to Postgres: see package internal/outage.
//
// If a group has no live instance, its item includes the jobs that fail for reason no_executor or lost, and its waiting runs.
//
// # Bounds
//
// An answer has at most MaxItems items of each kind, and each query reads a bounded number of rows along an index, however many jobs and runs
// there are. If more exist, the answer says so.
//
// # Acknowledgements
//
// An acknowledgement marks an item. It silences no alert. It ends at an instant that the user chose, and when the cause of the item changes. The
// table keeps the cause, and readers ignore an acknowledgement with another cause. Dispatchers delete the acknowledgement of a group without
// executors when they see a live instance of the group (InstancesSeen).
package attention
