// Package importer converts the definitions of an XXL-JOB database into jobs, groups, users and alert channels of Belfry, and says for
// each job what differs. It is pure: package source reads the database, and the command line sends the result to the REST API.
//
// # What a verdict means
//
// exact: Belfry fires the job when XXL-JOB fires it, and each setting has an equal counterpart. differs: the job is imported, and each
// difference is named. impossible: the job is not imported, and the reason is named.
//
// Fire times are compared and not derived: package quartz computes those of XXL-JOB, package schedule those of Belfry, and
// Compare walks along both, also around the next changes of the zone's clocks. In addition, the database holds the next fire time that
// XXL-JOB itself has computed for each enabled job. If Belfry's differs from it, the report says so.
//
// # Time zones
//
// XXL-JOB does not store the zone of its cron expressions. But for an enabled job with a cron expression, trigger_next_time is an instant
// that matches the expression in that zone. CronZone takes the zone in which most of these instants match. The zone of DATETIME columns
// follows from pairs of a trigger's local time in xxl_job_log and the same trigger's instant in trigger_last_time.
//
// # A second import
//
// The server keeps, for each imported job, the id that the job has in XXL-JOB, the source, and the job as the import wrote it. Merge
// compares three versions: what the last import wrote, what the job is now, and what XXL-JOB says now. A field that only XXL-JOB changed is
// updated. A field that a person changed in Belfry is kept, and reported if XXL-JOB says something else. A job that a person deleted
// is not created again.
package importer
