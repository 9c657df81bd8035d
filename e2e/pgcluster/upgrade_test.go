//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"testing"
)

// timeline is in the name of the current WAL file.
const timeline = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"

func TestDataOutlivesAnUpgradeAndARestoreAndTheTimelineDoesNot(t *testing.T) {
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
