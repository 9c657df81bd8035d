package elector

import "fmt"

// Standby is what a candidate does while another leads.
type Standby int

const (
	// Poll tries the lock once per retry interval, on a connection that it
	// borrows from the pool for one statement.
	Poll Standby = iota
	// Wait parks the candidate in the server, which hands over the lock within a
	// millisecond of its release, in the order of waiting. It pins one connection
	// per candidate, whose backend shows as active.
	Wait
)

// WithStandby chooses what a candidate does while another leads: Poll, which is
// the default, or Wait. One wait lasts a heartbeat interval at the most, and is
// then begun anew, at the end of the queue, because a waiting statement holds
// back the server's xmin. An elector of a shared session polls.
func WithStandby(s Standby) Option {
	return func(c *config) error {
		if s != Poll && s != Wait {
			return fmt.Errorf("WithStandby(%d): want Poll or Wait", s)
		}
		c.standby = s
		c.ofSession = append(c.ofSession, "WithStandby")
		return nil
	}
}

// WithWatch makes a leader learn of the end of its backend within milliseconds,
// rather than at the next heartbeat. It pins one more connection while it leads,
// which is parked in the server and shows as active; the pool must allow 3.
func WithWatch() Option {
	return func(c *config) error {
		c.watch = true
		c.ofSession = append(c.ofSession, "WithWatch")
		return nil
	}
}
