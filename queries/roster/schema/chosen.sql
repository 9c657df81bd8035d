-- The schema in which the roster keeps its tables is chosen by the user. In the
-- queries, and for sqlc, it has this name, which stands for the chosen one: see
-- roster/schema.go.
CREATE SCHEMA chosen;
