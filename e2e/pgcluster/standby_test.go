//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"os"
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

// timeline is in the name of the current WAL file.
const timeline = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"

func TestUpgradeAndDumpAndRestoreKeepTheDataAndResetTheTimeline(t *testing.T) {
	for name, move := range map[string]func(*Cluster, context.Context) (*Cluster, error){
		"pg_upgrade": (*Cluster).Upgrade, "dump and restore": (*Cluster).DumpAndRestore} {
		t.Run(name, func(t *testing.T) {
			c := own(t)
			old, err := c.AddStandby(t.Context())
			check(t, err)
			check(t, old.Promote(t.Context()))
			conn := connect(t, old.DSN())
			if got := ask[int](t, conn, timeline); got != 2 {
				t.Errorf("a promoted standby is on timeline %d", got)
			}
			// pg_dumpall leaves out the settings of the databases that initdb makes.
			check(t, old.Exec(t.Context(), "CREATE DATABASE app"))
			check(t, old.Exec(t.Context(), "ALTER DATABASE app SET my.setting = '7'"))
			_, err = connect(t, old.DSN(ForDatabase("app"))).Exec(t.Context(), "CREATE TABLE kept ()")
			check(t, err)
			fresh, err := move(old, t.Context())
			if errors.Is(err, ErrNoProgram) {
				t.Skip(err)
			}
			check(t, err)
			conn = connect(t, fresh.DSN(ForDatabase("app")))
			ask[int](t, conn, "SELECT count(*) FROM kept")
			if got := ask[int](t, conn, timeline); got != 1 {
				t.Errorf("the new cluster is on timeline %d", got)
			}
			if got := ask[string](t, conn, "SELECT current_setting('my.setting')"); got != "7" {
				t.Errorf("the setting of the database is %q", got)
			}
		})
	}
}

func TestAServerWithAMovedWALWritesRestartsAndHasStandbys(t *testing.T) {
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
