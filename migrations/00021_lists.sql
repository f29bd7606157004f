-- +goose Up

-- The overview and the list of groups count jobs. This index has all columns that they read, and few bytes per job.
CREATE INDEX jobs_counted ON jobs (group_name, enabled);

-- Lists of the jobs with a tag.
CREATE INDEX jobs_tags ON jobs USING gin (tags);

-- +goose Down
DROP INDEX jobs_counted, jobs_tags;
