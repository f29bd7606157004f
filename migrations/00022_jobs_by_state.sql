-- +goose Up

-- Counts of jobs, and lists of the enabled or disabled jobs of a group, ordered by id.
DROP INDEX jobs_counted;
CREATE INDEX jobs_counted ON jobs (group_name, enabled, id);

-- Lists of all disabled jobs. There are usually few.
CREATE INDEX jobs_disabled ON jobs (id) WHERE NOT enabled;

-- +goose Down
DROP INDEX jobs_counted, jobs_disabled;
CREATE INDEX jobs_counted ON jobs (group_name, enabled);
