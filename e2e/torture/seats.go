//go:build linux

package main

// A seat is what one candidate after the other is like: who is killed is replaced
// by another in the same seat.
type seat struct {
	Seat                 string
	By                   string // the driver's name in database/sql
	Route                route
	Wait, Watch, Session bool
}

var seats = []seat{
	{Seat: "a", By: "pgx", Route: direct},
	{Seat: "b", By: "postgres", Route: direct, Wait: true},
	{Seat: "c", By: "pgx", Route: proxied, Wait: true, Watch: true},
	{Seat: "d", By: "postgres", Route: proxied, Watch: true},
	{Seat: "e", By: "pgx", Route: pooled, Session: true},
	{Seat: "f", By: "postgres", Route: pooled, Wait: true},
	{Seat: "g", By: "pgx", Route: linked, Wait: true},
	{Seat: "h", By: "postgres", Route: linked, Session: true, Watch: true},
}

// String describes the seat, for the log and the picture.
func (s seat) String() string {
	text := "polls"
	switch {
	case s.Wait:
		text = "waits"
	case s.Session:
		text = "session"
	}
	if s.Watch {
		text += ", watches"
	}
	by := s.By
	if by == "postgres" {
		by = "lib/pq"
	}
	return by + ", " + text + ", " + string(s.Route)
}
