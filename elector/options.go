package elector

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/lock"
	"github.com/pgelector/pgelector/internal/option"
	"github.com/pgelector/pgelector/internal/session"
)

// Option changes a default of New. Every option checks its own argument; New
// checks what they are together. A bad one is an error that wraps ErrConfig.
type Option func(*config) error

type config struct {
	lease           session.Lease
	heartbeatChosen bool
	drainChosen     bool
	retry           time.Duration
	backoff         backoff.Backoff
	maxAttempts     int
	readOnlyTimeout time.Duration
	keyChosen       bool
	key             int64
	candidateID     string
	hooks           []hooks.Hook
	gracefulRelease bool
	standby         Standby
	watch           bool
	synchronous     bool
	longestLease    time.Duration                 // if synchronous
	check           func(context.Context) float64 // of the candidate's health; nil without WithHealth
	healthPolicy    HealthPolicy
	notifier        Notifier
	tokenEpoch      int64
	ofSession       []string // the options given that belong to a session
}

const (
	minRetry = 10 * time.Millisecond
	maxRetry = 24 * time.Hour

	defaultLease = 10 * time.Second
	minLease     = time.Second
	maxLease     = 24 * time.Hour

	minHeartbeat = 50 * time.Millisecond
	maxHeartbeat = 30 * time.Second // when not chosen: below the idle timeout of common firewalls

	drainShare     = 5 // drain = lease/5, when not chosen
	heartbeatShare = 5 // heartbeat interval = lease/5, when not chosen

	defaultReadOnlyTimeout = time.Minute // a failover by Patroni takes up to 40 s with its defaults
	defaultRetry           = time.Second
	backoffGrowth          = 5 // the longest backoff, in retry intervals, when not chosen
	maxCandidateID         = 63
)

// WithKey sets the 64-bit advisory lock key of the election. Any value will do.
// Default: KeyFromName of the election.
func WithKey(key int64) Option {
	return func(c *config) error {
		c.key, c.keyChosen = key, true
		return nil
	}
}

// WithCandidateID sets the name by which this candidate is seen as the
// application_name of its session: 1 to 63 bytes of printable ASCII, unique
// among live candidates. Default: host name, process id and six random hex
// digits, such as "web-1-4711-a3f09c".
func WithCandidateID(id string) Option {
	return func(c *config) error {
		if err := checkCandidateID(id); err != nil {
			return option.Of("WithCandidateID", strconv.Quote(id)).Bad("%v", err)
		}
		c.candidateID = id
		c.ofSession = append(c.ofSession, "WithCandidateID")
		return nil
	}
}

// WithRetryInterval sets the longest wait of a candidate between two attempts
// while another leads; each wait is shortened by a random quarter at the most, the
// first of a campaign by up to seven eighths, so that candidates do not ask in
// step. Default 1 s, at least 10 ms, at most 24 h.
func WithRetryInterval(d time.Duration) Option {
	return func(c *config) error {
		c.retry = d
		c.ofSession = append(c.ofSession, "WithRetryInterval")
		if d < minRetry || d > maxRetry {
			return option.Of("WithRetryInterval", d).Bad("want %v <= interval <= %v", minRetry, maxRetry)
		}
		return nil
	}
}

// WithBackoff sets the wait after failed attempts: min after the first,
// doubling with each to at most max, shortened like the retry interval.
// Default: the retry interval, and five times that. Both are at least 10 ms and
// at most 24 h. An attempt fails when the server cannot be asked; a lock that is
// busy is no failure.
//
// In the first minute of an outage of a server that the candidate has reached before,
// quick attempts are made between these. The candidate that led makes them, and one with
// WithStandby(Wait), each 250 to 334 ms after the one before it; the others make one per
// retry interval. A server that is starting up, or is full, has them from the one that
// led alone. Hooks hear of them by OnCampaign, and not by OnError.
func WithBackoff(min, max time.Duration) Option {
	return func(c *config) error {
		c.backoff = backoff.Backoff{Min: min, Max: max}
		if max < min {
			return fmt.Errorf("WithBackoff(%v, %v): want min <= max", min, max)
		}
		if err := between(minRetry, min, maxRetry, "WithBackoff(%v, %v): min", min, max); err != nil {
			return err
		}
		return between(minRetry, max, maxRetry, "WithBackoff(%v, %v): max", min, max)
	}
}

// WithReadOnlyTimeout sets how long Run, Start and Campaign wait for a server that is a
// hot standby, and that the candidate has never seen to be a primary: a candidate that
// starts during a failover may meet one. Each attempt is reported to OnError, and the
// waits between are those of WithBackoff. After d the standby is refused with
// ErrServerReadOnly. Default: one minute. 0 refuses it at once; at most 24 h. A server
// that was a primary before is waited for without end.
func WithReadOnlyTimeout(d time.Duration) Option {
	return func(c *config) error {
		c.readOnlyTimeout = d
		if d < 0 || d > maxRetry {
			return option.Of("WithReadOnlyTimeout", d).Bad("want 0 <= timeout <= %v", maxRetry)
		}
		return nil
	}
}

// WithMaxAttempts makes Run, Start and Campaign give up with ErrGaveUp after n
// failed attempts in a row. Default 0: never. Waiting while another leads is
// not failing, so it goes on for as long as it takes. Quick attempts (WithBackoff)
// do not count.
func WithMaxAttempts(n int) Option {
	return func(c *config) error {
		if n < 0 {
			return option.Of("WithMaxAttempts", n).Bad("want n >= 0")
		}
		c.maxAttempts = n
		return nil
	}
}

// WithLease sets for how long the server keeps the session, and with it the
// lock, of a candidate that sends nothing. Default 10 s, at least 1 s, at most
// 24 h. It bounds both how long an election stays without a leader after the
// leader froze or was cut off, and how long a stall of the database a leader
// survives. It is counted in whole milliseconds.
func WithLease(d time.Duration) Option {
	return func(c *config) error {
		c.lease.Length = d.Truncate(time.Millisecond)
		c.ofSession = append(c.ofSession, "WithLease")
		return nil
	}
}

// WithHeartbeatInterval sets the time from one heartbeat to the next. Default:
// a fifth of the lease, at least 50 ms and at most 30 s. Two intervals must fit
// into lease - lease/10 - drain.
func WithHeartbeatInterval(d time.Duration) Option {
	return func(c *config) error {
		c.lease.Heartbeat, c.heartbeatChosen = d, true
		c.ofSession = append(c.ofSession, "WithHeartbeatInterval")
		return nil
	}
}

// WithDrain sets the time that the leader's work gets to return once its
// context is cancelled. If that happens because the lease runs out, it is that much
// before the server may give the lock to another. If the term ends while its session
// lives (it was resigned, shut down, or the candidate is unhealthy), the lock is held
// until the work returns, however long that takes. Either way, work that has not
// returned within the drain is reported to OnError as ErrOverrun; while the lock is
// held that is not before one heartbeat interval. The caller of Campaign
// has that time after each end of its term, unless it resigns sooner. Default: a
// fifth of the lease. 0 is allowed, for work that stops at once.
func WithDrain(d time.Duration) Option {
	return func(c *config) error {
		c.lease.Drain, c.drainChosen = d, true
		c.ofSession = append(c.ofSession, "WithDrain")
		return nil
	}
}

// WithTokenEpoch adds n to the timeline in the tokens of this candidate's terms, so
// that tokens rise although the server's timeline has fallen: after a pg_upgrade, a
// dump and restore, or the loss of a promoted branch. Default 0, at most 32766. An
// attempt fails with ErrTokenEpoch if timeline and epoch exceed 32767.
//
// Every candidate of the election must have the same, and no candidate may campaign
// without the option while another has it: its token could be smaller than that of the
// term before. So stop all candidates, and start them all with the option.
// ALTER DATABASE … SET pgelector.epoch, if a superuser can run it, needs no such care,
// because every candidate reads it at each election. The larger of the two counts.
func WithTokenEpoch(n int) Option {
	return func(c *config) error {
		if n < 0 || n > lock.MaxTokenEpoch {
			return option.Of("WithTokenEpoch", n).Bad("want 0 <= n <= %d", lock.MaxTokenEpoch)
		}
		c.tokenEpoch = int64(n)
		c.ofSession = append(c.ofSession, "WithTokenEpoch")
		return nil
	}
}

// WithHooks adds hooks, which are told of everything that happens, in the
// order given. It may be used more than once.
func WithHooks(all ...hooks.Hook) Option {
	return func(c *config) error {
		for i, h := range all {
			if err := hooks.Check(h); err != nil {
				return fmt.Errorf("WithHooks: hook %d: %w", i+1, err)
			}
		}
		c.hooks = append(c.hooks, all...)
		return nil
	}
}

// WithGracefulRelease(false) leaves out the unlock when a term ends because of
// a shutdown: the session is closed instead, and the server frees the lock when
// it sees that. Default true. Resign always unlocks.
func WithGracefulRelease(graceful bool) Option {
	return func(c *config) error {
		c.gracefulRelease = graceful
		c.ofSession = append(c.ofSession, "WithGracefulRelease")
		return nil
	}
}

func configure(election string, opts []Option) (config, error) {
	c := config{lease: session.Lease{Length: defaultLease}, retry: defaultRetry, readOnlyTimeout: defaultReadOnlyTimeout, gracefulRelease: true}
	if err := option.CheckElection(election); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	for i, opt := range opts {
		if opt == nil {
			return c, fmt.Errorf("%w: option %d is nil", ErrConfig, i+1)
		}
		if err := opt(&c); err != nil {
			return c, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	c.complete(election)
	if err := checkLease(c.lease); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if c.synchronous {
		if err := checkLongestLease(c.lease, c.longestLease); err != nil {
			return c, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	return c, nil
}

// complete fills in what was not chosen.
func (c *config) complete(election string) {
	implied := leaseOf(c.lease.Length)
	if !c.drainChosen {
		c.lease.Drain = implied.Drain
	}
	if !c.heartbeatChosen {
		c.lease.Heartbeat = implied.Heartbeat
	}
	if c.backoff == (backoff.Backoff{}) {
		c.backoff = backoff.Backoff{Min: c.retry, Max: backoffGrowth * c.retry}
	}
	if !c.keyChosen {
		c.key = KeyFromName(election)
	}
	if c.candidateID == "" {
		host, _ := os.Hostname()
		c.candidateID = newCandidateID(host)
	}
}

// ofServer is what sessions are to be like, and who is told of them.
func (c *config) ofServer(beat func(session.Beat), report func(context.Context, hooks.Failure)) session.Config {
	return session.Config{Name: c.candidateID, Lease: c.lease, Watch: c.watch, LongestLease: c.longestLease,
		OnBeat: beat, Report: func(ctx context.Context, task session.Task, err error) {
			report(ctx, hooks.Failure{Op: ops[task], Err: err})
		}}
}

var ops = map[session.Task]hooks.Op{
	session.Campaigning: hooks.OpCampaign,
	session.Releasing:   hooks.OpRelease,
	session.Setting:     hooks.OpSetting,
	session.Watching:    hooks.OpWatch,
	session.Calling:     hooks.OpCall,
}

// leaseOf is a lease of that length, with the heartbeat interval and the drain that follow
// from it.
func leaseOf(length time.Duration) session.Lease {
	return session.Lease{
		Length:    length,
		Heartbeat: min(max(length/heartbeatShare, minHeartbeat), maxHeartbeat),
		Drain:     length / drainShare,
	}
}

// checkLease says which inequality does not hold.
func checkLease(l session.Lease) error {
	length, heartbeat, drain := option.Of("WithLease", l.Length), option.Of("WithHeartbeatInterval", l.Heartbeat), option.Of("WithDrain", l.Drain)
	switch {
	case l.Length < minLease || l.Length > maxLease:
		return length.Bad("want %v <= lease <= %v", minLease, maxLease)
	case l.Drain < 0:
		return drain.Bad("want drain >= 0")
	case l.Heartbeat < minHeartbeat:
		return heartbeat.Bad("want heartbeat interval >= %v", minHeartbeat)
	case l.Heartbeat > l.Validity()/2: // twice the interval may be more than a Duration holds
		return &option.Error{Options: []option.Value{heartbeat, length, drain}, Want: fmt.Sprintf("want 2*heartbeat <= lease - lease/10 - drain, "+
			"but that is %v: shorten the heartbeat interval or the drain, or lengthen the lease", l.Validity())}
	}
	return nil
}

// checkLongestLease says what does not hold of the longest lease of all candidates.
func checkLongestLease(l session.Lease, longest time.Duration) error {
	if longest < l.Length || longest > maxLease {
		return &option.Error{Options: []option.Value{option.Of("WithSynchronousStandby", longest), option.Of("WithLease", l.Length)},
			Want: fmt.Sprintf("want the longest lease of all candidates: %v <= longest lease <= %v", l.Length, maxLease)}
	}
	return nil
}

func between(least, d, most time.Duration, option string, args ...any) error {
	if d < least || d > most {
		return fmt.Errorf(option+": want %v <= %v <= %v", append(args, least, d, most)...)
	}
	return nil
}
