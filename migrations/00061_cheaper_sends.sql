-- +goose Up

-- A settled send gets an entry in each index of the table, so there are fewer of them. This one finds the sends of an attempt. It also forbids a second one
-- that is not unstarted.
CREATE UNIQUE INDEX gateway_sends_of_attempt ON gateway_sends (run_id, attempt, (CASE WHEN unstarted THEN log_id ELSE 0 END));
DROP INDEX gateway_sends_attempt, gateway_sends_bind, gateway_sends_forget;

-- +goose Down
CREATE INDEX gateway_sends_forget ON gateway_sends (forget_at) WHERE forget_at IS NOT NULL;
CREATE UNIQUE INDEX gateway_sends_bind ON gateway_sends (run_id, attempt, bind);
CREATE UNIQUE INDEX gateway_sends_attempt ON gateway_sends (run_id, attempt) WHERE NOT unstarted;
DROP INDEX gateway_sends_of_attempt;
