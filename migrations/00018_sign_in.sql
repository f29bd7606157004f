-- +goose Up

-- Users of kind oidc are identified by issuer and subject. They have no password (no password matches the empty hash), and get their role
-- and groups from the provider at each log-in.
ALTER TABLE users
    ADD COLUMN must_change_password boolean NOT NULL DEFAULT false,
    ADD COLUMN kind text NOT NULL DEFAULT 'local' CONSTRAINT users_kind CHECK (kind IN ('local', 'oidc')),
    ADD COLUMN issuer text,
    ADD COLUMN subject text,
    ADD CONSTRAINT users_subject UNIQUE (issuer, subject),
    ADD CONSTRAINT users_provider CHECK ((kind = 'oidc') = (issuer IS NOT NULL AND subject IS NOT NULL));

-- The id identifies a session to its user, because the token is shown only once.
ALTER TABLE sessions
    ADD COLUMN id bigint NOT NULL GENERATED ALWAYS AS IDENTITY CONSTRAINT sessions_id UNIQUE,
    ADD COLUMN agent text NOT NULL DEFAULT '',
    ADD COLUMN last_used_at timestamptz NOT NULL DEFAULT now();

-- +goose Down
ALTER TABLE sessions DROP COLUMN id, DROP COLUMN agent, DROP COLUMN last_used_at;
ALTER TABLE users DROP COLUMN must_change_password, DROP COLUMN kind, DROP COLUMN issuer, DROP COLUMN subject;
