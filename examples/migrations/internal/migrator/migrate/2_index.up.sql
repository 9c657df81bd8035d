CREATE INDEX CONCURRENTLY events_by_id ON events (id)
