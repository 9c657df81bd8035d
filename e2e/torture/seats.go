//go:build linux

package main

import "github.com/pgelector/pgelector/e2e/fleet"

// The routes of the candidates.
const (
	direct  fleet.Route = "direct"
	proxied fleet.Route = "proxy"     // one of its own
	pooled  fleet.Route = "pgbouncer" // in session mode, one for all
	linked  fleet.Route = "link"      // from a network namespace of its own
)

var seats = []fleet.Seat{
	{ID: "a", By: "pgx", Route: direct},
	{ID: "b", By: "postgres", Route: direct, Wait: true},
	{ID: "c", By: "pgx", Route: proxied, Wait: true, Watch: true},
	{ID: "d", By: "postgres", Route: proxied, Watch: true},
	{ID: "e", By: "pgx", Route: pooled, Session: true},
	{ID: "f", By: "postgres", Route: pooled, Wait: true},
	{ID: "g", By: "pgx", Route: linked, Wait: true},
	{ID: "h", By: "postgres", Route: linked, Session: true, Watch: true},
}
