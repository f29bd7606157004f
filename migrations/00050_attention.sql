-- +goose Up

-- Acknowledgements of what needs attention: see package attention of the store. An item has at most one.
CREATE TABLE attention_acks (
    item     text PRIMARY KEY, -- the id of the item: its kind and key
    cause    text NOT NULL, -- of the item when it was acknowledged; if the cause has changed, the acknowledgement has ended
    by_actor text NOT NULL,
    at       timestamptz NOT NULL DEFAULT now(),
    note     text NOT NULL,
    until    timestamptz -- null: until the cause changes
);

-- The failed deliveries of alerts, newest first.
CREATE INDEX alert_deliveries_failed ON alert_deliveries (updated_at) WHERE state = 'failed';

-- +goose Down
DROP INDEX alert_deliveries_failed;
DROP TABLE attention_acks;
