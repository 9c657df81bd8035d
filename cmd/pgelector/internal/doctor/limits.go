package doctor

import (
	"context"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/db"
)

// settings names the settings that would end a session if an election did not override them.
func (x *Examination) settings(ctx context.Context) error {
	enders, err := question(ctx, x, func(ctx context.Context, q *db.Queries) ([]db.SessionEndersRow, error) { return q.SessionEnders(ctx) })
	if err != nil {
		return err
	}
	if len(enders) == 0 {
		x.say(ok, "settings", "none would end a session")
	}
	for _, s := range enders {
		x.say(note, "settings", "%s = %s (from: %s): harmless, because an election overrides it on its session", s.Name, s.Value, s.Source)
	}
	return nil
}

// privileges checks the privileges of operators. An election needs none.
func (x *Examination) privileges(ctx context.Context) error {
	p, err := question(ctx, x, func(ctx context.Context, q *db.Queries) (db.PrivilegesRow, error) { return q.Privileges(ctx) })
	if err != nil {
		return err
	}
	x.role = strconv.Quote(p.Role)
	if p.ReadsStats && p.SignalsBackends {
		x.say(ok, "privileges", "role %q sees every session, and may evict any leader except a superuser's", p.Role)
	}
	if !p.ReadsStats {
		x.say(note, "privileges", "role %q does not see the address and start of other roles' leaders, and cannot fence transactions "+
			"of their terms: GRANT pg_read_all_stats if needed", p.Role)
	}
	if !p.SignalsBackends {
		x.say(note, "privileges", "role %q can evict only leaders of its own role: GRANT pg_signal_backend if needed", p.Role)
	}
	return nil
}

// An election's leader and deputy pin a session each, however many candidates it has. A
// leader may pin one more (WithWatch). Leader, deputy and one of the others may each borrow a
// connection for one statement at the same time.
const (
	pins   = 3
	needed = pins + 3
)

// capacity checks for free locks and connections.
func (x *Examination) capacity(ctx context.Context) error {
	c, err := question(ctx, x, func(ctx context.Context, q *db.Queries) (db.CapacityRow, error) { return q.Capacity(ctx) })
	if err != nil {
		return err
	}
	switch free := c.LockSlots - c.Locks; {
	case free < c.LockSlots/10:
		x.say(warn, "lock table", "%d of %d locks in use: raise max_locks_per_transaction before the table is full", c.Locks, c.LockSlots)
	default:
		x.say(ok, "lock table", "%d of %d locks in use", c.Locks, c.LockSlots)
	}
	scarce := false
	for _, limit := range []struct {
		what        string
		used, slots int64
	}{
		{"of the server's connections (max_connections)", c.Connections, c.ConnectionSlots},
		{"of this role's connections (ALTER ROLE … CONNECTION LIMIT)", c.RoleConnections, c.RoleLimit},
		{"of this database's connections (ALTER DATABASE … CONNECTION LIMIT)", c.DatabaseConnections, c.DatabaseLimit},
	} {
		if limit.slots >= 0 && limit.slots-limit.used < needed {
			scarce = true
			x.say(warn, "connections", "%d of %d %s are in use, and one more election may take %d: raise the limit", limit.used, limit.slots, limit.what, needed)
		}
	}
	if !scarce {
		x.say(ok, "connections", "%d of %d in use", c.Connections, c.ConnectionSlots)
	}
	x.need()
	return nil
}

// need shows what the leaders and deputies of the whole fleet keep, however many candidates
// there are.
func (x *Examination) need() {
	n := x.Elections
	for _, mode := range []struct {
		scope, standby string
		keep           int64
	}{
		{"session", "deputy (the default) or wait", 2 * n},
		{"session", "poll", n},
		{"transaction", "poll (the default there)", n},
		{"transaction", "deputy or wait", 2 * n},
	} {
		x.say(note, "need", "%d elections in %s scope with the standby %s keep %d server connections, and %d more with WithWatch", n, mode.scope, mode.standby, mode.keep, n)
	}
	x.say(note, "need", "a shared session (NewSession, session scope) keeps one for each process, however many elections it has")
	x.say(note, "need", "candidates borrow up to %d more for moments: one for each statement", needed-pins)
}

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
