package doctor

import (
	"context"
	"time"

	"github.com/pgelector/pgelector/db"
)

// silence is how long a deputy may be silent. It asks at least once per heartbeat interval,
// which is at most 30 s unless chosen longer.
const silence = time.Minute

// elections counts the sessions that elections pin, and looks for seats that no candidate
// uses.
func (x *Examination) elections(ctx context.Context) error {
	var now int64
	rows, err := question(ctx, x, func(ctx context.Context, q *db.Queries) (rows []db.AdvisoryLocksRow, err error) {
		if rows, err = q.AdvisoryLocks(ctx); err == nil {
			now, err = q.Clock(ctx)
		}
		return rows, err
	})
	if err != nil {
		return err
	}
	led, deputies, hidden := 0, 0, 0
	pinned := map[int32]bool{}
	for _, r := range rows {
		pinned[r.Pid] = true
		if r.Granted {
			led++
		}
		if !r.Deputy {
			continue
		}
		deputies++
		switch silent := time.Duration(now-r.LastMicros) * time.Microsecond; {
		case r.LastMicros == 0:
			hidden++
		case silent > silence:
			x.say(warn, "deputy", "backend %d (%q, user %s) holds the deputy's seat of the election with key %d, and has sent nothing for %v: no "+
				"candidate uses that seat, so a dead leader is replaced only after a retry interval: end the session, unless it is a "+
				"candidate with a longer heartbeat interval: SELECT pg_terminate_backend(%d)",
				r.Pid, r.ApplicationName, r.Usename, r.Key, silent.Round(time.Second), r.Pid)
		}
	}
	x.say(ok, "elections", "%d have a leader, and %d a deputy: %d sessions are pinned", led, deputies, len(pinned))
	if hidden > 0 {
		x.say(note, "deputy", "role %s may not see whether %d of the deputies still ask: GRANT pg_read_all_stats if needed", x.role, hidden)
	}
	return nil
}
