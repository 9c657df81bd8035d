-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS events_by_id;
CREATE INDEX CONCURRENTLY events_by_id ON events (id);
-- +goose Down
DROP INDEX CONCURRENTLY events_by_id;
