-- +goose Up

-- Counts of jobs, and lists of those of a group that are enabled or not, in order of their ids.
DROP INDEX jobs_counted;
CREATE INDEX jobs_counted ON jobs (group_name, enabled, id);

-- Lists of all that are disabled, which are mostly few.
CREATE INDEX jobs_disabled ON jobs (id) WHERE NOT enabled;

-- +goose Down
DROP INDEX jobs_counted, jobs_disabled;
CREATE INDEX jobs_counted ON jobs (group_name, enabled);
