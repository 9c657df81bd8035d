package syncrep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/tenure"
	"github.com/pgelector/pgelector/internal/transaction"
)

// commits prove to a leader that no standby has been promoted: every standby that may be
// promoted acknowledges each commit, and a promoted standby acknowledges nothing. Commits are
// made one at a time, on a connection of their own. On a primary that is cut off, a commit
// waits until the standbys are back, and keeps its locks even when its client is gone: on the
// session's connection it would keep the election's lock.
type commits struct {
	of    *election.Session
	key   int64          // of a lock on the session, which shows that both are on one server
	scope int64          // the election's: its commits do not pile up
	conn  *pin.Conn      // nil before the first commit, and after the connection has failed
	sent  lease.Instant  // just before the last commit was sent
	on    tenure.Primary // once a commit was acknowledged

	acked atomic.Pointer[lease.Instant] // just before the last acknowledged commit was sent
	doubt atomic.Pointer[error]         // why the last commit was not acknowledged; nil if it was
}

// Granted makes the first commit of a session that was just granted the lock. It returns when the
// commit is acknowledged: nobody may see the term before.
func (p *Part) Granted(ctx context.Context, s *election.Session, g election.Grant) error {
	c := &commits{of: s, key: int64(rand.Uint64()), scope: lockkey.Of("commit", g.Key)}
	err := c.first(ctx)
	if err == nil {
		err = p.mayLeadOn(s.Source(), c.on)
	}
	if err == nil { // nobody has asked the session meanwhile: it may have ended
		if err = s.Heartbeat(ctx); err != nil {
			err = fmt.Errorf("elector: ask the session after its first commit: %w", pgerr.Explain(err))
		}
	}
	if err != nil {
		c.close()
		return err
	}
	s.AddBound(c)
	s.Go(c.loop)
	return nil
}

// Left is how much is left of the validity that the last acknowledged commit gives.
func (c *commits) Left() time.Duration {
	return c.of.Lease().Validity() - c.of.Now().Since(*c.acked.Load())
}

// Expiry says why nothing is left.
func (c *commits) Expiry() error {
	l := c.of.Lease()
	why := fmt.Errorf("%w: elector: the synchronous standbys acknowledged no commit for %v (a term lasts %v without one; the lease is %v)",
		pgerr.ErrLeaseExpired, c.of.Now().Since(*c.acked.Load()).Round(time.Second/10), l.Validity(), l.Length)
	if doubt := c.doubt.Load(); doubt != nil {
		return fmt.Errorf("%w: %w", why, *doubt)
	}
	return why
}

// first tries until a commit is acknowledged, while the session is valid. It connects first, and
// then asks the session, which proves the session anew: on a slow link each step takes its time.
func (c *commits) first(ctx context.Context) error {
	within := func() (context.Context, context.CancelFunc) {
		left := c.of.Left()
		return context.WithTimeoutCause(ctx, left, fmt.Errorf("%w within %v", errUnacknowledged, left.Round(time.Millisecond)))
	}
	connecting, cancel := within()
	err := c.connected(connecting)
	if late := context.Cause(connecting); late != nil {
		cancel()
		return cmp.Or(err, late)
	}
	cancel()
	if err := transaction.HoldPair(ctx, c.of, c.key, pgerr.ErrNoAdvisoryLocks); err != nil {
		return fmt.Errorf("elector: take the lock by which commits know their server: %w", pgerr.Explain(err))
	}
	if err := c.of.Heartbeat(ctx); err != nil {
		return err
	}
	ctx, cancel = within()
	defer cancel()
	heartbeat := c.of.Lease().Heartbeat
	again := backoff.Backoff{Min: heartbeat / 20, Max: heartbeat}
	for n := 1; ; n++ {
		err := c.commit(ctx)
		if err == nil || errors.Is(err, pgerr.ErrNotSynchronous) || !backoff.Sleep(ctx, again.After(n)) {
			return err
		}
	}
}

// loop goes on with the commits until the session has ended. While none is
// acknowledged, the bound runs out.
func (c *commits) loop() {
	defer c.close()
	s, failures := c.of, 0
	again := backoff.Backoff{Min: s.Lease().Heartbeat / 10, Max: s.Lease().Heartbeat}
	for {
		pause := s.Lease().Heartbeat - s.Now().Since(c.sent)
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
			c.doubt.Store(&err)
		default:
			failures = 0
			c.doubt.Store(nil)
		}
	}
}

// commit makes one commit. An acknowledged commit proves the session from just before the commit
// was sent. The next commit replaces a connection that fails.
func (c *commits) commit(ctx context.Context) error {
	if err := c.connected(ctx); err != nil {
		return err
	}
	err := c.commitOn(ctx)
	if err != nil && !errors.Is(err, errUnacknowledged) && !errors.Is(err, pgerr.ErrNotSynchronous) {
		c.close()
		c.of.HeartbeatNow() // the session may have gone with it
	}
	return err
}

// ask asks on the connection for commits.
func ask[A, T any](ctx context.Context, c *pin.Conn, statement func(*db.Queries, context.Context, A) (T, error), argument A) (T, error) {
	return pooled.Value(statement, argument, func(call pin.Call) error {
		_, err := c.Call(ctx, call, nil)
		return err
	})
}

func (c *commits) commitOn(ctx context.Context) error {
	sent := c.of.Now()
	c.sent = sent
	high, low := lockkey.Halves(c.key)
	scopeHigh, scopeLow := lockkey.Halves(c.scope)
	commit, err := ask(ctx, c.conn, (*db.Queries).CommitSynchronously,
		db.CommitSynchronouslyParams{SessionHigh: high, SessionLow: low, ScopeHigh: scopeHigh, ScopeLow: scopeLow})
	if err != nil {
		return fmt.Errorf("elector: commit to the synchronous standbys: %w", pgerr.Explain(err))
	}
	took := c.of.Now().Since(sent)
	now, err := askReplication(ctx, func(ctx context.Context, lsn string) (db.SynchronousStandbysRow, error) {
		return ask(ctx, c.conn, (*db.Queries).SynchronousStandbys, lsn)
	}, commit.Lsn)
	if err != nil {
		return err
	}
	err = acknowledgement{commit, now, took}.check(c.of.Lease().Validity() / 2)
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
	c.acked.Store(&sent)
	return nil
}

// connected opens a connection if there is none. It skips connections on which other code has
// left a transaction open.
func (c *commits) connected(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}
	for next := pooled.NextIdle(c.of.Source().Pool()); ; {
		if err := c.connect(ctx); !errors.Is(err, pgerr.ErrOpenTransaction) || !next.More() {
			return err
		}
	}
}

// connect takes a connection whose commits wait for the standbys, whatever the role's
// defaults are. Inside a transaction that other code has left open nothing would be committed.
func (c *commits) connect(ctx context.Context) error {
	conn, err := c.of.Source().Take(ctx)
	if err != nil {
		return err
	}
	err = describe(ctx, conn)
	if err == nil {
		settings := slices.DeleteFunc(c.of.Source().Settings(), func(s election.Setting) bool { return s.Name == "synchronous_commit" })
		settings = append(settings, election.Setting{Name: "synchronous_commit", Value: "on"})
		_, err = ask(ctx, conn, (*db.Queries).ApplySettings, db.ApplySettingsParams{Settings: election.Encode(settings)})
	}
	if err == nil {
		err = describe(ctx, conn) // finds the first one in the same transaction
	}
	if err != nil {
		conn.Discard(false, false)
		return fmt.Errorf("elector: set the connection for commits up: %w", pgerr.Explain(err))
	}
	c.conn = conn
	return nil
}

// describe returns an error if other code has left a transaction open on the connection.
func describe(ctx context.Context, c *pin.Conn) error {
	row, err := ask(ctx, c, func(q *db.Queries, ctx context.Context, _ any) (db.DescribeServerRow, error) {
		return q.DescribeServer(ctx)
	}, nil)
	if err == nil && row.InTransaction {
		c.Taint()
		err = pgerr.ErrOpenTransaction
	}
	return err
}

// close gives the connection up, and cancels a commit under way. If the server does not hear of
// that, the backend goes on waiting for the standbys.
func (c *commits) close() {
	if c.conn != nil {
		c.conn.Discard(false, false)
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
// server answers a cancelled wait like one that has ended well. So each standby must still
// stream, and a role that may see how far the standbys are asks whether each has got the commit.
// An answer that took longer than longest does not count.
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
