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

-- Which jobs an edit of a calendar concerns. Their versions have its days in their specs, so that the engine never reads it.
ALTER TABLE jobs ADD COLUMN calendar text CONSTRAINT jobs_calendar_fkey REFERENCES calendars (name);
CREATE INDEX jobs_calendar ON jobs (calendar, id) WHERE calendar IS NOT NULL;

-- +goose Down
ALTER TABLE jobs DROP COLUMN calendar;
DROP TABLE calendars;
