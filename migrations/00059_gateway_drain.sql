-- +goose Up

-- A drain belongs to the executor at the address, not to the gateway process that serves it.
ALTER TABLE gateway_addresses ADD COLUMN drained_at timestamptz; -- when an operator drained the instance; null: it takes runs

-- +goose Down
ALTER TABLE gateway_addresses DROP COLUMN drained_at;
