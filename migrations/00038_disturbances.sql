-- +goose Up

-- Faults of the database and its clock that schedulers and dispatchers have noticed. With them, the fire check names the cause of late and
-- missed fire times instead of a time without a scheduler. Old rows are deleted.
CREATE TABLE disturbances (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind    text NOT NULL, -- clock_step, postgres_away
    from_at timestamptz NOT NULL, -- the last reading of the database's clock before it
    to_at   timestamptz NOT NULL, -- the first reading after it; earlier than from_at if the clock stepped back
    step_ms bigint NOT NULL DEFAULT 0, -- of clock_step; negative: back
    seen_by text NOT NULL, -- role, host and process that recorded it first
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- +goose Down
DROP TABLE disturbances;
