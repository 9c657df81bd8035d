//go:build unix

package pgcluster

import (
	"testing"
	"time"
)

const waitReplay = 10 * time.Second

func TestStandbyFollowsAndTakesOver(t *testing.T) {
	c := own(t)
	check(t, c.Exec(t.Context(), "CREATE TABLE before ()"))
	standby, err := c.AddStandby(t.Context())
	check(t, err)
	check(t, standby.Exec(t.Context(), "TABLE before"))

	check(t, c.Exec(t.Context(), "SET synchronous_commit = local; CREATE TABLE after ()"))
	eventually(t, waitReplay, "the standby has the new table", func() bool {
		return standby.Exec(t.Context(), "TABLE after") == nil
	})

	conn := connect(t, standby.DSN())
	if !ask[bool](t, conn, "SELECT pg_is_in_recovery()") {
		t.Error("the standby is not in recovery")
	}
	check(t, c.Kill())
	check(t, standby.Promote(t.Context()))
	if ask[bool](t, conn, "SELECT pg_is_in_recovery()") {
		t.Error("the promoted standby is in recovery")
	}
	check(t, standby.Exec(t.Context(), "CREATE TABLE own ()"))
}

func TestStandbyCatchesUpAfterAnAbsence(t *testing.T) {
	c := own(t)
	standby, err := c.AddStandby(t.Context())
	check(t, err)
	check(t, standby.Shutdown(t.Context(), Fast))
	check(t, c.Exec(t.Context(), "CREATE TABLE missed AS SELECT generate_series(1, 100000)"))
	check(t, c.Exec(t.Context(), "CHECKPOINT"))
	check(t, standby.Resume(t.Context()))
	eventually(t, waitReplay, "the standby has what it missed", func() bool {
		return standby.Exec(t.Context(), "TABLE missed LIMIT 1") == nil
	})
}
