-- +goose Up
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL, made timestamptz NOT NULL DEFAULT now());
CREATE TABLE reports (at timestamptz PRIMARY KEY, orders bigint NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL,
	tries integer NOT NULL DEFAULT 0, try_at timestamptz NOT NULL DEFAULT now(), set_aside text);
CREATE INDEX IF NOT EXISTS outbox_waiting ON outbox (id) WHERE set_aside IS NULL;
