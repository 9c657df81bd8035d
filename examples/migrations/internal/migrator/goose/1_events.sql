-- +goose Up
CREATE TABLE IF NOT EXISTS events (id bigint);
-- +goose Down
DROP TABLE events;
