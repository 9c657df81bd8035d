package doctor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/ask"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/status"
	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/roster"
)

const oldest = 140000 // PostgreSQL 14 introduced idle_session_timeout, which enforces the lease

// server checks the version and recovery, and reports whether a trial makes sense.
func (x *Examination) server(s db.DescribeServerRow) (usable bool) {
	version, _, _ := strings.Cut(s.Version, " on ")
	if s.VersionNum < oldest {
		x.say(fail, "version", "%s cannot enforce a lease: PostgreSQL 14 or newer is needed", version)
	} else {
		x.say(ok, "version", "%s", version)
	}
	if s.InRecovery {
		x.say(fail, "recovery", "this is a standby: connect to the primary, for instance with target_session_attrs=read-write")
	} else {
		x.say(ok, "recovery", "this is a primary")
	}
	return s.VersionNum >= oldest && !s.InRecovery
}

// pooler detects a pooler: it answers the handshake with a process id that is not the backend's. A
// driver may not tell that id. The trial election finds out what a pooler shares.
func (x *Examination) pooler(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, x.Timeout)
	defer cancel()
	conn, err := x.Target.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	answers, err := conn.Backend(ctx)
	if err != nil {
		return err
	}
	greeted, known := conn.Greeted()
	if x.direct = known && greeted == answers; x.direct {
		x.say(ok, "pooler", "none: the server answers directly")
	}
	x.pooled = known && greeted != answers
	return nil
}

// sessionLocksAreStubs reports whether a lock of a session is granted and does not show. The lock is let go
// in the same statement.
func (x *Examination) sessionLocksAreStubs(ctx context.Context) bool {
	key := rand.Int64()
	high, low := int32(key>>32), int32(key)
	shown, err := question(ctx, x, func(ctx context.Context, q *db.Queries) (bool, error) {
		return q.TrialLock(ctx, db.TrialLockParams{High: high, Low: low, Key: key})
	})
	return err == nil && !shown
}

// mode says in which mode the pooler is, if there is one, by the outcome of the trial.
func (x *Examination) mode(err error) {
	switch {
	case x.direct:
	case errors.Is(err, elector.ErrSessionPooled) && ask.IsRefusal(err):
		x.statements = true
		x.say(fail, "pooler", "there is one in statement mode, which shares backends and so the lock: connect to the server directly, or through a pool in session "+
			"or transaction mode")
	case err != nil && x.pooled:
		x.say(note, "pooler", "there is one: see why the trial election failed")
	case err != nil:
	case x.inside && !x.stubs:
		x.say(note, "pooler", "there is one in transaction mode: a leader holds its lock inside a transaction (transaction scope), which keeps one of the "+
			"pooler's server connections, idle in transaction; see the need below, and leave idle_transaction_timeout of the pooler at 0")
	case x.pooled:
		x.say(note, "pooler", "there is one, apparently in session mode, which works: make sure that it does not close idle connections before the lease ends")
	default:
		x.say(ok, "pooler", "none that shares backends")
	}
}

// A token is the sum of timeline and epoch, followed by the transaction id.
const (
	sumShift = 48
	maxSum   = 1<<15 - 1
)

// tokenParts shows the parts of the trial's token, and whether it is larger than LastToken.
func (x *Examination) tokenParts(ctx context.Context) error {
	if x.token == 0 {
		return nil // the trial reported why
	}
	setting, err := question(ctx, x, func(ctx context.Context, q *db.Queries) (string, error) { return q.TokenEpoch(ctx) })
	if err != nil {
		return err
	}
	stored, err := strconv.ParseInt(setting, 10, 64)
	if err != nil {
		return fmt.Errorf("the setting pgelector.epoch of this database: %w", err)
	}
	own := int64(x.TokenEpoch)
	timeline := x.token>>sumShift - max(stored, own)
	v, remark := ok, ""
	switch {
	case own == 0 && stored > 0:
		remark = " (pgelector.epoch of the database)"
	case own == stored:
	case stored == 0:
		v, remark = note, fmt.Sprintf(" (--token-epoch): set the same for every candidate, with --token-epoch or WithTokenEpoch, "+
			"or once for all with ALTER DATABASE … SET pgelector.epoch = '%d'", own)
	case own > stored:
		v, remark = warn, fmt.Sprintf(" (--token-epoch), but pgelector.epoch of the database is %d: candidates without the flag get smaller tokens, "+
			"which a fenced store refuses: ALTER DATABASE … SET pgelector.epoch = '%d'", stored, own)
	default:
		v, remark = warn, fmt.Sprintf(" (pgelector.epoch of the database): it is larger than --token-epoch %d, so omit the flag", own)
	}
	x.say(v, "token", "%d: timeline %d, transaction %d, epoch %d%s", x.token, timeline, transaction(x.token), max(stored, own), remark)
	if x.LastToken > 0 {
		x.compare(timeline)
	}
	return nil
}

// compare checks that new tokens are larger than the last one, or names the epoch that
// makes them so.
func (x *Examination) compare(timeline int64) {
	last := fmt.Sprintf("%d (timeline and epoch %d, transaction %d)", x.LastToken, x.LastToken>>sumShift, transaction(x.LastToken))
	needed := x.LastToken>>sumShift - timeline
	if transaction(x.token) <= transaction(x.LastToken) {
		needed++
	}
	switch {
	case x.token > x.LastToken:
		x.say(ok, "last token", "%s: new tokens are larger", last)
	case timeline+needed > maxSum:
		x.say(fail, "last token", "%s: new tokens are not larger, and no epoch can make them so: reset the token in the store while nobody writes", last)
	default:
		x.say(fail, "last token", "%s: new tokens are not larger, so the store refuses every leader: "+
			"ALTER DATABASE … SET pgelector.epoch = '%d' as a superuser, or set --token-epoch %[2]d or WithTokenEpoch(%[2]d) on every candidate", last, needed)
	}
}

func transaction(token int64) int64 { return token & (1<<sumShift - 1) }

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
			"of their terms: GRANT pg_read_all_stats if needed, to a role that inherits", p.Role)
	}
	if !p.SignalsBackends {
		x.say(note, "privileges", "role %q can evict only leaders of its own role: GRANT pg_signal_backend if needed, to a role that inherits", p.Role)
	}
	return nil
}

// An election's leader and deputy pin a session each, however many candidates it has. Leader,
// deputy and one of the others may each borrow a connection for one statement at the same time.
const (
	pins   = 2
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
	if x.Healthy() {
		x.need()
	}
	return nil
}

// need shows what the leaders and deputies of the whole fleet keep, however many candidates
// there are.
func (x *Examination) need() {
	n := x.Elections
	if !x.inside {
		x.say(note, "need", "session scope: %d of the server's connections for %s with the takeover deputy (the default) or wait, %d with poll", pins*n, counted(n), n)
	}
	x.say(note, "need", "transaction scope: %d of the server's connections for %s with the takeover poll (the default there), %d with deputy or wait", n, counted(n), pins*n)
	x.say(note, "need", "candidates borrow up to %d more for moments: one for each statement", needed-pins)
	x.say(note, "need", "a shared session (NewSession, session scope) keeps one for each process, however many elections it has")
}

func counted(elections int64) string {
	if elections == 1 {
		return "1 election"
	}
	return fmt.Sprintf("%d elections", elections)
}

// silence is how long a deputy may be silent. It asks at least once per heartbeat interval,
// which is at most 30 s unless chosen longer.
const silence = time.Minute

// isStranger reports whether a session that is no candidate's holds the deputy's seat: a
// candidate takes the seat and publishes its lease by one statement.
func isStranger(r db.AdvisoryLocksRow) bool { return r.Deputy && r.LeaseMillis == 0 }

// election names an election: by a roster in its default schema, if this role may read one, else by its key, as status does.
func (x *Examination) election(ctx context.Context, key int64) string {
	ctx, cancel := context.WithTimeout(ctx, x.Timeout)
	defer cancel()
	known, err := roster.New(x.pool)
	if err == nil {
		var all []roster.Candidate
		if all, err = ask.Await(ctx, func(ctx context.Context) ([]roster.Candidate, error) { return known.Candidates(ctx, key) }); err == nil && len(all) > 0 {
			return status.Shown(all[0].Election)
		}
	}
	return fmt.Sprint("key ", key)
}

// elections counts the sessions that elections pin, and looks for seats that no candidate
// uses.
func (x *Examination) elections(ctx context.Context) error {
	var now int64
	look := func() ([]db.AdvisoryLocksRow, error) {
		return question(ctx, x, func(ctx context.Context, q *db.Queries) (rows []db.AdvisoryLocksRow, err error) {
			if rows, err = q.AdvisoryLocks(ctx, db.Keys()); err == nil {
				now, err = q.Clock(ctx)
			}
			return rows, err
		})
	}
	rows, err := look()
	if err == nil && slices.ContainsFunc(rows, isStranger) { // or its statement that takes the seat goes on
		rows, err = look()
	}
	if err != nil {
		return err
	}
	led, deputies, hidden, untracked := 0, 0, 0, 0
	pinned := map[int32]bool{}
	for _, r := range rows {
		if r.Blocks != "" {
			x.say(warn, "elections", "%s: %s", x.election(ctx, r.Key), db.Blocker(r.Pid, r.ApplicationName, r.Usename, r.Blocks, r.Prepared))
			continue
		}
		pinned[r.Pid] = true
		if r.Granted {
			led++
		}
		if !r.Deputy {
			continue
		}
		deputies++
		switch silent := time.Duration(now-r.LastMicros) * time.Microsecond; {
		case isStranger(r):
			x.say(warn, "deputy", "backend %d (%q, user %s) holds the deputy's seat of the election %s, and publishes no lease, as "+
				"every candidate does: nobody is deputy, so a dead leader is replaced only after a retry interval: end the session: "+
				"SELECT pg_catalog.pg_terminate_backend(%d)", r.Pid, r.ApplicationName, status.Shown(r.Usename), x.election(ctx, r.Key), r.Pid)
		case r.LastMicros == 0 && r.ConnectedMicros != 0: // not hidden from this role
			untracked++
		case r.LastMicros == 0:
			hidden++
		case silent > silence:
			x.say(warn, "deputy", "backend %d (%q, user %s) holds the deputy's seat of the election %s, and has sent nothing for %v: no "+
				"candidate uses that seat, so a dead leader is replaced only after a retry interval: end the session, unless it is a "+
				"candidate with a longer heartbeat interval: SELECT pg_catalog.pg_terminate_backend(%d)",
				r.Pid, r.ApplicationName, status.Shown(r.Usename), x.election(ctx, r.Key), silent.Round(time.Second), r.Pid)
		}
	}
	x.say(ok, "elections", "%d have a leader, and %d a deputy: %d sessions are pinned", led, deputies, len(pinned))
	if len(rows) >= db.MostRows {
		x.say(note, "elections", "only the first %d sessions with advisory locks are counted: there may be more", len(rows))
	}
	if hidden > 0 {
		x.say(note, "deputy", "role %s may not see whether %d of the deputies still ask: GRANT pg_read_all_stats if needed", x.role, hidden)
	}
	if untracked > 0 {
		x.say(note, "deputy", "nobody can see whether %d of the deputies still ask, because track_activities is off for their sessions: set it to on", untracked)
	}
	return nil
}
