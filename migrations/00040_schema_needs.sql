-- +goose Up

-- The oldest binary that may run with this schema, by the number of the newest migration that it contains. A migration that removes or changes
-- what an older binary uses raises it. 30 is the newest migration of the previous release, which does not read this table yet.
CREATE TABLE schema_needs (
    single     boolean PRIMARY KEY DEFAULT true CHECK (single),
    min_binary bigint NOT NULL
);
INSERT INTO schema_needs (min_binary) VALUES (30);

-- +goose Down
DROP TABLE schema_needs;
