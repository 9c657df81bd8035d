//go:build linux

package fleet

import "time"

// A Seat is what one candidate after the other is like: who is killed is replaced
// by another in the same seat.
type Seat struct {
	ID                   string
	By                   string // the driver's name in database/sql
	Route                Route
	Wait, Watch, Session bool
	Synchronous          bool          // WithSynchronousStandby; not on a Session
	Retry                time.Duration // 0: that of settings.go
}

// A Route is how a candidate reaches the server.
type Route string

// String describes the seat, for the log and the picture.
func (s Seat) String() string {
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
