//go:build linux

package main

import (
	"context"
	"os/exec"
	"syscall"

	"github.com/pgelector/pgelector/e2e/fleet"
)

// newFleet returns the candidates of a stage. fail is called for one that ends by
// itself.
func newFleet(s *stage, fail context.CancelCauseFunc) *fleet.Fleet {
	linked := func(m *fleet.Member) bool { return m.Route == linked && s.namespaces }
	return fleet.New(fleet.Config{
		Seats: seats,
		DSN:   s.dsn,
		Ended: func(m *fleet.Member) { fail(m.Err()) },
		Prepare: func(m *fleet.Member, cmd *exec.Cmd) {
			if linked(m) {
				cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
			}
		},
		Started: func(m *fleet.Member) (err error) {
			if linked(m) {
				s.wired++
				s.links[m.Name], err = wire(s.wired, m.PID())
			}
			return err
		},
	})
}

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
