//go:build unix

package pgcluster

import (
	"os"
	"testing"
)

func TestAServerWithItsLogElsewhereWritesRestartsAndHasStandbys(t *testing.T) {
	elsewhere, err := os.MkdirTemp("", "pgelector-wal-") // not t.TempDir, which the server's user cannot enter
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(elsewhere)) })
	c := own(t)
	if c.MoveWAL(elsewhere) == nil {
		t.Error("the log of a running server was moved")
	}
	check(t, c.Exec(t.Context(), "CREATE TABLE before ()"))
	check(t, c.Shutdown(t.Context(), Fast))
	check(t, c.MoveWAL(elsewhere))
	check(t, c.Resume(t.Context()))
	check(t, c.Exec(t.Context(), "TABLE before; CREATE TABLE after ()"))
	check(t, c.Restart(t.Context(), Immediate))
	standby, err := c.AddStandby(t.Context())
	check(t, err)
	check(t, standby.Exec(t.Context(), "TABLE after"))
}

func TestADetachedStandbyOutlivesItsPrimary(t *testing.T) {
	c := own(t)
	standby, err := c.AddStandby(t.Context())
	check(t, err)
	standby.Detach()
	t.Cleanup(func() { check(t, standby.Stop()) })
	check(t, c.Stop())
	check(t, standby.Promote(t.Context()))
}
