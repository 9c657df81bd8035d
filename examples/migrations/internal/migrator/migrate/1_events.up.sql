CREATE TABLE IF NOT EXISTS events (id bigint)
