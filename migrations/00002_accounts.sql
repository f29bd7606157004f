-- +goose Up

CREATE TABLE users (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name          text NOT NULL UNIQUE,
    password_hash text NOT NULL, -- argon2id, PHC string
    role          text NOT NULL CHECK (role IN ('admin', 'operator', 'viewer')),
    groups        text[] NOT NULL DEFAULT '{}', -- of operators and viewers
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now()
);

-- Log-ins. Only the client knows the token itself.
CREATE TABLE sessions (
    token_sha256 bytea PRIMARY KEY,
    user_id      bigint NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    remote       text NOT NULL DEFAULT ''
);
CREATE INDEX sessions_expiry ON sessions (expires_at);
CREATE INDEX sessions_user ON sessions (user_id);

CREATE TABLE api_tokens (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id      bigint NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    name         text NOT NULL,
    token_sha256 bytea NOT NULL UNIQUE,
    role         text NOT NULL CHECK (role IN ('admin', 'operator', 'viewer')),
    groups       text[] NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    last_used_at timestamptz,
    UNIQUE (user_id, name)
);

CREATE TABLE audit_log (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT now(),
    actor  text NOT NULL,
    remote text NOT NULL,
    action text NOT NULL, -- such as job.update
    object text NOT NULL, -- such as job/7
    before jsonb,
    after  jsonb
);
CREATE INDEX audit_log_object ON audit_log (object, id);

-- Answers to POST requests, kept for 24 h. A repeated request gets the same answer and changes nothing.
CREATE TABLE idempotency_keys (
    actor       text NOT NULL,
    route       text NOT NULL,
    key         text NOT NULL,
    body_sha256 bytea NOT NULL,
    status      integer, -- null while the first request runs
    response    bytea,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (actor, route, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

-- +goose Down
DROP TABLE idempotency_keys, audit_log, api_tokens, sessions, users;
