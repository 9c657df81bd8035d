-- A placeholder for the schema that the user chooses: see roster/schema.go.
CREATE SCHEMA chosen;
