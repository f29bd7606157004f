-- +goose Up

CREATE TABLE calendars (
    name        text PRIMARY KEY,
    description text NOT NULL,
    days_off    jsonb NOT NULL, -- weekdays and dates, sorted, each once
    version     integer NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_by  text NOT NULL
);

-- The calendar that a job uses. An edit of the calendar updates these jobs: each version of a job has a copy of the days in its spec, so
-- that the engine never reads calendars.
ALTER TABLE jobs ADD COLUMN calendar text CONSTRAINT jobs_calendar_fkey REFERENCES calendars (name);
CREATE INDEX jobs_calendar ON jobs (calendar, id) WHERE calendar IS NOT NULL;

-- +goose Down
ALTER TABLE jobs DROP COLUMN calendar;
DROP TABLE calendars;
