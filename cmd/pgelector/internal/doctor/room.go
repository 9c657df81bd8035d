package doctor

import (
	"context"

	"github.com/pgelector/pgelector/db"
)

// settings names what would end a session, were it not set anew for it.
func (x *Examination) settings(ctx context.Context) error {
	enders, err := question(ctx, x, func(ctx context.Context, q *db.Queries) ([]db.SessionEndersRow, error) { return q.SessionEnders(ctx) })
	if err != nil {
		return err
	}
	if len(enders) == 0 {
		x.say(ok, "settings", "none would end a session")
	}
	for _, s := range enders {
		x.say(note, "settings", "%s = %s (from: %s): an election sets its own value on its own session, so this does no harm to it", s.Name, s.Value, s.Source)
	}
	return nil
}

// privileges are for operators: an election needs none.
func (x *Examination) privileges(ctx context.Context) error {
	p, err := question(ctx, x, func(ctx context.Context, q *db.Queries) (db.PrivilegesRow, error) { return q.Privileges(ctx) })
	if err != nil {
		return err
	}
	if p.ReadsStats && p.SignalsBackends {
		x.say(ok, "privileges", "role %q sees every session, and may evict any leader but a superuser's", p.Role)
	}
	if !p.ReadsStats {
		x.say(note, "privileges", "role %q sees of other roles' leaders neither where from nor since when, and cannot fence transactions "+
			"of their terms: GRANT pg_read_all_stats, if that is wanted", p.Role)
	}
	if !p.SignalsBackends {
		x.say(note, "privileges", "role %q can evict only leaders of its own role: GRANT pg_signal_backend, if more is wanted", p.Role)
	}
	return nil
}

// A candidate takes three connections at the most: the session, the watcher, and
// one for questions. There should be room for two candidates.
const needed = 2 * 3

// room is for locks and connections.
func (x *Examination) room(ctx context.Context) error {
	c, err := question(ctx, x, func(ctx context.Context, q *db.Queries) (db.CapacityRow, error) { return q.Capacity(ctx) })
	if err != nil {
		return err
	}
	switch free := c.LockSlots - c.Locks; {
	case free < c.LockSlots/10:
		x.say(warn, "lock table", "%d of %d in use: raise max_locks_per_transaction before it is full", c.Locks, c.LockSlots)
	default:
		x.say(ok, "lock table", "%d of %d in use", c.Locks, c.LockSlots)
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
			x.say(warn, "connections", "%d of %d %s are in use, which leaves less than the %d that two candidates may take: raise the limit", limit.used, limit.slots, limit.what, needed)
		}
	}
	if !scarce {
		x.say(ok, "connections", "%d of %d in use; two candidates take up to %d", c.Connections, c.ConnectionSlots, needed)
	}
	return nil
}
