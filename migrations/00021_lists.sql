-- +goose Up

-- The overview and the list of groups count jobs; this has all that they read, and next to no bytes per job.
CREATE INDEX jobs_counted ON jobs (group_name, enabled);

-- Lists of the jobs with a tag.
CREATE INDEX jobs_tags ON jobs USING gin (tags);

-- +goose Down
DROP INDEX jobs_counted, jobs_tags;
