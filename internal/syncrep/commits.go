package syncrep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pair"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/session"
	"github.com/pgelector/pgelector/internal/tenure"
)

// commits prove to a leader that no standby has been promoted: every standby that may be
// acknowledges each, and a promoted one acknowledges nothing. They are made one at a time,
// on a connection of their own. On a primary that is cut off, a commit waits until its
// standbys are back, and keeps its locks even when its client is gone: on the session it
// would keep the election's lock.
type commits struct {
	source *session.Source
	of     *session.Session
	key    int64            // of a lock on the session, which shows that both are on one server
	scope  int64            // the election's: its commits do not pile up
	conn   *session.Session // nil before the first commit, and after the connection has failed
	sent   lease.Instant    // just before the last commit was sent
	on     tenure.Primary   // once a commit was acknowledged
}

// Enter makes the first commit of a session that was just granted the lock. It returns when the
// commit is acknowledged: nobody may see the term before.
func (p *Part) Enter(ctx context.Context, from *session.Source, s *session.Session, g session.Grant) error {
	c := &commits{source: from.Copy(), of: s, key: int64(rand.Uint64()), scope: lockkey.Of("commit", g.Key)}
	err := c.first(ctx)
	if err == nil {
		err = p.mayLeadOn(from, c.on)
	}
	if err == nil { // nobody has asked the session meanwhile: it may have ended
		if err = session.PingDriver(ctx, s); err != nil {
			err = fmt.Errorf("elector: ask the session after its first commit: %w", pgerr.Explain(err))
		}
	}
	if err != nil {
		c.close()
		return err
	}
	s.Along(c.loop)
	return nil
}

// first tries until a commit is acknowledged, while the session is valid. It connects first,
// and then asks the session, which proves it anew: on a slow link each takes its time.
func (c *commits) first(ctx context.Context) error {
	within := func() (context.Context, context.CancelFunc) {
		left := c.of.Proof.Left()
		return context.WithTimeoutCause(ctx, left, fmt.Errorf("%w within %v", errUnacknowledged, left.Round(time.Millisecond)))
	}
	connecting, cancel := within()
	err := c.connected(connecting)
	if late := context.Cause(connecting); late != nil {
		cancel()
		return cmp.Or(err, late)
	}
	cancel()
	if err := pair.Hold(c.of, c.key, pgerr.ErrNoAdvisoryLocks); err != nil {
		return fmt.Errorf("elector: take the lock by which commits know their server: %w", pgerr.Explain(err))
	}
	ctx, cancel = within()
	defer cancel()
	heartbeat := c.of.Proof.Lease.Heartbeat
	again := backoff.Backoff{Min: heartbeat / 20, Max: heartbeat}
	for n := 1; ; n++ {
		err := c.commit(ctx)
		if err == nil || errors.Is(err, pgerr.ErrNotSynchronous) || !backoff.Sleep(ctx, again.After(n)) {
			return err
		}
	}
}

// loop goes on with the commits until the session has ended. While none is
// acknowledged, the session's validity runs out.
func (c *commits) loop() {
	defer c.close()
	s, failures := c.of, 0
	again := backoff.Backoff{Min: s.Proof.Lease.Heartbeat / 10, Max: s.Proof.Lease.Heartbeat}
	for {
		pause := s.Proof.Lease.Heartbeat - s.Proof.Now().Since(c.sent)
		if failures > 0 {
			pause = again.After(failures)
		}
		if !backoff.Sleep(s.Context(), pause) {
			return
		}
		err := c.commit(s.Context())
		switch {
		case s.Context().Err() != nil:
			return
		case errors.Is(err, pgerr.ErrNotSynchronous):
			s.EndTerms(err)
			return
		case err != nil:
			failures++
			s.Proof.Doubt(err)
		default:
			failures = 0
		}
	}
}

// commit makes one commit. If it is acknowledged, it proves the session from just before it
// was sent. The next commit replaces a connection that fails.
func (c *commits) commit(ctx context.Context) error {
	if err := c.connected(ctx); err != nil {
		return err
	}
	err := c.commitOn(ctx, c.conn)
	if err != nil && !errors.Is(err, errUnacknowledged) && !errors.Is(err, pgerr.ErrNotSynchronous) {
		c.close()
		c.of.HeartbeatNow() // the session may have gone with it
	}
	return err
}

func (c *commits) commitOn(ctx context.Context, conn *session.Session) error {
	sent := c.of.Proof.Now()
	c.sent = sent
	high, low := lockkey.Halves(c.key)
	scopeHigh, scopeLow := lockkey.Halves(c.scope)
	commit, err := session.Ask(ctx, conn, (*db.Queries).CommitSynchronously,
		db.CommitSynchronouslyParams{SessionHigh: high, SessionLow: low, ScopeHigh: scopeHigh, ScopeLow: scopeLow})
	if err != nil {
		return fmt.Errorf("elector: commit to the synchronous standbys: %w", pgerr.Explain(err))
	}
	took := c.of.Proof.Now().Since(sent)
	now, err := askReplication(ctx, conn, commit.Lsn)
	if err != nil {
		return err
	}
	err = acknowledgement{commit, now, took}.check(c.of.Proof.Lease.Validity() / 2)
	known := c.on != tenure.Primary{}
	if known && now.primary() != c.on { // where a stranger may hold the lock of the session
		err = errElsewhere
	}
	switch {
	case errors.Is(err, errElsewhere) && known && now.Timeline > c.on.Timeline:
		return c.of.Lose(fmt.Errorf("%w: timeline %d has replaced timeline %d: %w", pgerr.ReplacedBy(now.Timeline), now.Timeline, c.on.Timeline, err))
	case err != nil:
		return err
	}
	c.on = now.primary()
	c.of.Proof.Acknowledge(sent)
	return nil
}

// connected connects unless there is a connection. It passes over those of the pool with a
// transaction that other code has left open.
func (c *commits) connected(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}
	for next := session.NextIdle(c.source.Pool()); ; {
		if err := c.connect(ctx); !errors.Is(err, pgerr.ErrOpenTransaction) || !next.More() {
			return err
		}
	}
}

// connect takes a connection whose commits wait for the standbys, whatever the role's
// defaults are. Inside a transaction that other code has left open nothing would be committed.
func (c *commits) connect(ctx context.Context) error {
	conn, err := c.source.Borrow(ctx)
	if err != nil {
		return err
	}
	_, err = session.Describe(ctx, conn)
	if err == nil {
		_, err = session.Ask(ctx, conn, (*db.Queries).ApplySettings, db.ApplySettingsParams{Settings: c.source.SettingsWith("synchronous_commit", "on")})
	}
	if err == nil {
		_, err = session.Describe(ctx, conn) // finds the first one in the same transaction
	}
	if err != nil {
		conn.Discard()
		return fmt.Errorf("elector: set the connection for commits up: %w", pgerr.Explain(err))
	}
	c.conn = conn
	return nil
}

// close gives the connection up, and cancels a commit under way. If that does not reach the
// server, the backend goes on waiting for the standbys.
func (c *commits) close() {
	if c.conn != nil {
		c.conn.Discard()
		c.conn = nil
	}
}

var (
	// errUnacknowledged is returned for a commit that proves nothing, on a connection that works.
	errUnacknowledged = errors.New("elector: the synchronous standbys have not acknowledged a commit")

	// errElsewhere is returned for a connection that does not see the session's lock.
	errElsewhere = errors.New("elector: the connection for commits leads to another server than the session's, or the session has ended")
)

// An acknowledgement is the answer to a commit, what the server said of its standbys right
// after, and how long the answer took.
type acknowledgement struct {
	commit db.CommitSynchronouslyRow
	now    replication
	took   time.Duration
}

// check returns nil if every standby that may be promoted has acknowledged the commit. The
// server answers a cancelled wait like one that has ended well. So each standby must stream
// still, and a role that may see how far they are asks whether each has got the commit. No answer
// counts that took longer than longest.
func (a acknowledgement) check(longest time.Duration) error {
	not := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", errUnacknowledged, fmt.Sprintf(format, args...))
	}
	switch {
	case a.now.Pid != a.commit.Pid:
		return fmt.Errorf("%w: backend %d was asked for a commit, then %d answered", pgerr.ErrSessionPooled, a.commit.Pid, a.now.Pid)
	case a.commit.Outcome == "waiting":
		return not("an earlier one of this election still waits for them, or a stranger holds its lock")
	case a.commit.Outcome != "committed":
		return errElsewhere
	}
	listed, err := ListedStandbys(a.now.StandbyNames)
	if err != nil {
		return err
	}
	if a.commit.StandbyNames != a.now.StandbyNames || a.commit.Loaded != a.now.Loaded {
		return not("the server's configuration was reloaded meanwhile")
	}
	if err := checkStreams(listed, a.now.senders); err != nil { // one that is away cannot be asked how far it is
		return not("%v", err)
	}
	for _, name := range listed {
		for _, one := range named(a.now.senders, name) {
			if one.Behind {
				return not("standby %q has not got it, although the server has answered: somebody has cancelled the wait", name)
			}
		}
	}
	if a.took > longest {
		return not("the answer took %v, and counts only within %v: somebody may have cancelled the wait", a.took.Round(time.Millisecond), longest)
	}
	return nil
}
