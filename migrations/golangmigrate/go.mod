module github.com/pgelector/pgelector/migrations/golangmigrate

go 1.26.0

require (
	github.com/golang-migrate/migrate/v4 v4.20.1
	github.com/pgelector/pgelector v0.1.0
)

require github.com/lib/pq v1.12.3 // indirect
