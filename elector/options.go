package elector

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/validate"
)

// An Option changes a default of New. Each checks its own argument; New checks them
// together. The error of one that cannot be used wraps ErrConfig.
type Option interface{ apply(*config) error }

// A SessionOption is an Option that NewSession takes too.
type SessionOption interface {
	Option
	forSession()
}

// An ElectionOption is an Option that Session.Elector takes too.
type ElectionOption interface {
	Option
	forElection()
}

// A RequestOption is an ElectionOption that RequestResign and RequestTransfer take too.
type RequestOption interface {
	ElectionOption
	forRequest()
}

// A CommonOption can be given to New, Session.Elector, and NewSession, where it is the
// default of the session's elections.
type CommonOption interface {
	SessionOption
	ElectionOption
}

type (
	option         func(*config) error
	sessionOption  struct{ option }
	electionOption struct{ option }
	requestOption  struct{ option }
	commonOption   struct{ option }
)

func (o option) apply(c *config) error { return o(c) }

func (sessionOption) forSession() {}

func (electionOption) forElection() {}

func (requestOption) forElection() {}

func (requestOption) forRequest() {}

func (commonOption) forSession() {}

func (commonOption) forElection() {}

// set makes an option of what cannot fail.
func set(change func(*config)) option {
	return func(c *config) error {
		change(c)
		return nil
	}
}

// An OptionError says which options cannot be used, alone or together. An error that wraps
// ErrConfig may wrap it. A program that has other names for them, such as flags, can name its own.
type OptionError struct {
	Options []OptionValue // the one to change first comes first
	Want    string        // what does not hold, such as "want drain >= 0"
}

// An OptionValue is an option, such as WithLease, and the value that it was set to.
type OptionValue struct{ Name, Value string }

func (e *OptionError) Error() string {
	return e.Name(func(o OptionValue) string { return o.Name + "(" + o.Value + ")" })
}

// Name is the error's text with the options as name writes them.
func (e *OptionError) Name(name func(OptionValue) string) string {
	text := ""
	for i, o := range e.Options {
		switch {
		case i == 1:
			text += " with "
		case i > 1:
			text += " and "
		}
		text += name(o)
	}
	return text + ": " + e.Want
}

// check returns the error of one option, unless its value is good.
func check(good bool, name string, value any, format string, args ...any) error {
	if good {
		return nil
	}
	return &OptionError{[]OptionValue{valueOf(name, value)}, fmt.Sprintf(format, args...)}
}

func valueOf(name string, value any) OptionValue { return OptionValue{name, fmt.Sprint(value)} }

// maxElectionBytes is how long the name of an election may be.
const maxElectionBytes = 1024

// CheckElection returns an error that wraps ErrConfig unless an election may have that
// name: 1 to 1024 bytes of printable characters in UTF-8, with no white space but the ASCII space, and
// none at the ends. Names that look alike would be different elections.
func CheckElection(name string) error {
	if err := lockkey.CheckName(name, maxElectionBytes); err != nil {
		return fmt.Errorf("%w: election name %w", ErrConfig, err)
	}
	return nil
}

type config struct {
	lease           lease.Lease
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
	hold            time.Duration // of TryRun
	shared          bool          // the candidate is of a shared session
	scope           Scope
	takeover        Takeover
	takeoverChosen  bool
	retryInside     time.Duration // in transaction scope
	deputyInterval  time.Duration
	synchronous     bool
	longestLease    time.Duration                      // if synchronous
	delays          bool                               // WithLockDelay
	lockDelay       time.Duration                      // if it delays
	check           func(context.Context) HealthReport // of the candidate's health; may be nil
	healthPolicy    HealthPolicy
	notifier        Notifier
	tokenEpoch      int64
	takesRequests   bool
	prefer          preferring

	validateInterval time.Duration
	validateChosen   bool
}

// preferring is whether, and how much, a candidate should lead.
type preferring struct {
	chosen   bool // WithPriority
	priority int32
	delay    time.Duration // WithPreemptDelay; 0 if that was not used
}

// onSharedSession is an option of each election of a shared session, and of the session.
var onSharedSession = sessionOption{set(func(c *config) { c.shared = true })}

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

	defaultReadOnlyTimeout = time.Minute     // a failover by Patroni takes up to 40 s with its defaults
	defaultRetry           = 3 * time.Second // the deputy asks more often
	defaultPollRetry       = time.Second
	defaultDeputyInterval  = 100 * time.Millisecond
	defaultBackoff         = time.Second
	defaultValidate        = time.Second
	minValidate            = 100 * time.Millisecond // PostgreSQL spends 50 µs or more on a look into pg_locks
	backoffGrowth          = 5                      // the longest backoff, in shortest ones, when not chosen
	defaultPreemptDelay    = 10 * time.Second
	maxCandidateID         = 63
	maxHold                = 24 * time.Hour
)

// WithKey sets the 64-bit advisory lock key of the election. Any value will do.
// Default: KeyFromName of the election.
func WithKey(key int64) RequestOption {
	return requestOption{set(func(c *config) { c.key, c.keyChosen = key, true })}
}

// WithCandidateID sets the name by which this candidate is seen as the
// application_name of its session: 1 to 63 bytes of printable ASCII with no space at
// the ends, unique among live candidates. Default: host name, process id and six random hex
// digits, such as "web-1-4711-a3f09c".
func WithCandidateID(id string) SessionOption {
	return sessionOption{func(c *config) error {
		err := checkCandidateID(id)
		c.candidateID = id
		return check(err == nil, "WithCandidateID", strconv.Quote(id), "%v", err)
	}}
}

// WithRetryInterval sets the longest wait between two attempts while another leads. Each
// wait is shortened by a random part, up to a quarter, and the first of a campaign by more,
// so that candidates do not ask in step. The deputy (WithTakeover) does not
// wait for it. Default 3 s, and 1 s with WithTakeover(Poll), on a shared session, or without a
// deputy in transaction scope; at least 10 ms, at most 24 h.
func WithRetryInterval(d time.Duration) SessionOption {
	return sessionOption{func(c *config) error {
		c.retry = d
		return check(minRetry <= d && d <= maxRetry, "WithRetryInterval", d, "want %v <= interval <= %v", minRetry, maxRetry)
	}}
}

// WithBackoff sets the wait after failed attempts: min after the first,
// doubling with each to at most max, shortened like the retry interval.
// Default min: WithRetryInterval if given, else 1 s. Default max: 5 × min, at most 24 h. Both
// are at least 10 ms and at most 24 h. An attempt fails when the server cannot be asked; a lock
// that is busy is no failure.
//
// In the first minute of an outage of a server that it has reached before, a candidate makes
// quick attempts between these. The candidate that led and the deputy make one every 250 to
// 334 ms. The others make one per retry interval. OnCampaign receives quick attempts, OnError does not.
func WithBackoff(min, max time.Duration) CommonOption {
	return commonOption{func(c *config) error {
		c.backoff = backoff.Backoff{Min: min, Max: max}
		if max < min {
			return fmt.Errorf("WithBackoff(%v, %v): want min <= max", min, max)
		}
		if err := between(minRetry, min, maxRetry, "WithBackoff(%v, %v): min", min, max); err != nil {
			return err
		}
		return between(minRetry, max, maxRetry, "WithBackoff(%v, %v): max", min, max)
	}}
}

// WithReadOnlyTimeout sets how long Run, Start and Campaign wait for a hot standby that the
// candidate has never seen as a primary, as one that starts during a failover may meet.
// OnError receives each attempt, and the waits are those of WithBackoff. After d they return
// ErrServerReadOnly. Default one minute; 0 refuses a standby at once; at most 24 h. They
// wait without end for a server that was a primary before.
func WithReadOnlyTimeout(d time.Duration) CommonOption {
	return commonOption{func(c *config) error {
		c.readOnlyTimeout = d
		return check(0 <= d && d <= maxRetry, "WithReadOnlyTimeout", d, "want 0 <= timeout <= %v", maxRetry)
	}}
}

// WithMaxAttempts makes Run, Start and Campaign give up with ErrGaveUp after n
// failed attempts in a row. Default 0: never. Waiting while another leads is
// not failing, so it goes on for as long as it takes. Quick attempts (WithBackoff)
// do not count.
func WithMaxAttempts(n int) CommonOption {
	return commonOption{func(c *config) error {
		c.maxAttempts = n
		return check(n >= 0, "WithMaxAttempts", n, "want n >= 0")
	}}
}

// WithLease sets how long the server keeps the session, and with it the lock, of a
// candidate that sends nothing. Default 10 s, at least 1 s, at most 24 h, in whole
// milliseconds. It bounds how long an election has no leader after the leader froze or was
// cut off, and how long a stall of the database a leader survives.
func WithLease(d time.Duration) SessionOption {
	return sessionOption{set(func(c *config) { c.lease.Length = d })}
}

// WithHeartbeatInterval sets the time from one heartbeat to the next. Default:
// a fifth of the lease, at least 50 ms and at most 30 s. Two intervals must fit
// into lease - lease/10 - drain.
func WithHeartbeatInterval(d time.Duration) SessionOption {
	return sessionOption{set(func(c *config) { c.lease.Heartbeat, c.heartbeatChosen = d, true })}
}

// WithValidateInterval sets how often a leader checks in pg_locks that it still holds its locks, beside
// its heartbeats: other code, or the driver, may have released them on its connection. Each check
// is one statement for all locks of a session. A lock that is gone ends the session, and its terms, with
// ErrSessionLost. Default 1 s, or ten heartbeat intervals if they are shorter; 0 turns the checks off; at least
// 100 ms, at most ten heartbeat intervals.
//
// The checks are put off so that they take at most 1/2000 of the time of one processor of the server, by the
// least of the last three: a server with thousands of locks takes longer. A slow network puts off nothing, unless a
// check takes half of the interval. But one comes at the latest with each tenth heartbeat.
// Settings has the interval in force. In transaction scope each heartbeat proves that the
// locks are held, and this option does nothing.
func WithValidateInterval(d time.Duration) SessionOption {
	return sessionOption{func(c *config) error {
		c.validateInterval, c.validateChosen = d, true
		return check(d == 0 || d >= minValidate, "WithValidateInterval", d, "want 0 or interval >= %v", minValidate)
	}}
}

// WithDrain sets the time that the leader's work gets to return once its context is cancelled.
// If the lease runs out, the context is cancelled that long before the server may give the
// lock to another. If the term ends while its session lives (it was resigned, shut down, or
// the candidate is unhealthy), the lock is held until the work returns, however long that
// takes. OnError receives ErrOverrun when work has not returned within the drain or, while the
// lock is held, one heartbeat interval, if that is longer. The caller of Campaign has the
// drain after each end of its term, unless it resigns sooner. Default: a fifth of the lease. 0
// is allowed, for work that stops at once.
func WithDrain(d time.Duration) SessionOption {
	return sessionOption{set(func(c *config) { c.lease.Drain, c.drainChosen = d, true })}
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
func WithTokenEpoch(n int) SessionOption {
	return sessionOption{func(c *config) error {
		c.tokenEpoch = int64(n)
		return check(0 <= n && n <= election.MaxTokenEpoch, "WithTokenEpoch", n, "want 0 <= n <= %d", election.MaxTokenEpoch)
	}}
}

// WithHealth lets a candidate campaign and lead only while it is healthy. An unhealthy
// candidate does not campaign, and is not the deputy. An
// unhealthy leader steps down as by Resign, with the reason hooks.Unhealthy and a cause
// that wraps ErrUnhealthy. Each time the candidate becomes unhealthy, OnError reports it
// (hooks.OpHealth). Elector.Health returns the last result; packages health and roster
// publish it.
//
// check returns a score, and may say why it is bad. A nil check is none: the policy is then about what the
// program reports of itself (ReportHealth), which counts for any candidate. On a shared session it turns
// off the check that NewSession was given. A check is bad if its score is below the policy's minimum, if it says so, if it
// panics, or if it does not return within an interval. The first check of each Run,
// TryRun, Start, Campaign or TryCampaign decides alone. Later it takes several in a row, so
// single outliers change nothing. Once every check is bad, a leader starts stepping down
// within StepDownAfter + 1 intervals.
//
// The elector calls check on a separate goroutine, one call at a time, from the start of
// its campaign to the end of its term. The check's context ends with its interval, and carries no values
// of the context that the campaign was given. If a
// call ignores that, the elector starts no other call, and counts each interval as one
// more bad check.
//
// While the candidate is unhealthy, Run, Start and Campaign wait, and TryCampaign and TryRun
// return ErrUnhealthy. On a shared session each election runs its own checks, even if the option
// was given to NewSession.
func WithHealth(check func(ctx context.Context) HealthReport, policy HealthPolicy) CommonOption {
	return commonOption{func(c *config) error {
		p := HealthPolicy{
			Minimum:       cmp.Or(policy.Minimum, defaultMinimum),
			Interval:      cmp.Or(policy.Interval, defaultInterval),
			StepDownAfter: cmp.Or(policy.StepDownAfter, defaultInARow),
			CampaignAfter: cmp.Or(policy.CampaignAfter, defaultInARow),

			StayWhenUnhealthy: policy.StayWhenUnhealthy,
		}
		switch {
		case !(p.Minimum > 0 && p.Minimum <= 1): // also refuses NaN
			return fmt.Errorf("WithHealth: Minimum %v: want 0 < minimum <= 1", p.Minimum)
		case p.StepDownAfter < 1 || p.StepDownAfter > maxInARow:
			return fmt.Errorf("WithHealth: StepDownAfter %d: want 1 <= n <= %d", p.StepDownAfter, maxInARow)
		case p.CampaignAfter < 1 || p.CampaignAfter > maxInARow:
			return fmt.Errorf("WithHealth: CampaignAfter %d: want 1 <= n <= %d", p.CampaignAfter, maxInARow)
		}
		c.check, c.healthPolicy = check, p
		if check == nil {
			c.healthPolicy = HealthPolicy{Minimum: p.Minimum, StayWhenUnhealthy: p.StayWhenUnhealthy}
		}
		return between(minInterval, p.Interval, maxInterval, "WithHealth: Interval %v", p.Interval)
	}}
}

// NotifyChannel is the channel of PostgreSQL's LISTEN and NOTIFY on which candidates
// with a notifier send events of their election to the others. The payload is an event,
// the election's key, and for the last event a candidate id, separated by spaces:
//
//	free -7521986112043361452           a leader has resigned: try now
//	led -7521986112043361452            a leader was elected: look who it is
//	request -7521986112043361452        somebody asks the leader to go: look who it is
//	successor -7521986112043361452 web-2     that candidate shall be the next leader
//
// Any role that may connect to the database may send them. They are hints: no candidate
// trusts or needs one.
const NotifyChannel = "pgelector"

// A Notifier receives the notifications on NotifyChannel for any number of electors.
// Package notify/pgx has one for pgx, package notify/pq one for lib/pq.
type Notifier interface {
	// Subscribe calls wake with the payload of each notification on NotifyChannel.
	// It calls wake with "" when it may have missed some, such as after it has
	// reconnected. wake returns at once. Subscribe does not wait for a connection.
	// No call of wake begins after unsubscribe has returned. Subscribe and
	// unsubscribe may be called from any goroutine, but not by wake.
	Subscribe(wake func(payload string)) (unsubscribe func())
}

// WithNotifier makes a resigning leader notify the others that the lock is free. A
// follower then tries at once, and [Elector.Observe] looks at once. A lost
// notification costs one retry interval, as without a notifier. A candidate makes at most
// four attempts for notifications in one retry interval, a deputy in one heartbeat interval,
// so a stranger's notifications cost little.
//
// It costs the notifier's one connection for each process, and one statement, with a small
// commit, for each election and each resignation. Another connection of the pool sends it, and
// a term waits a second at most until its last one is sent. Candidates with and without a
// notifier work together. The default is none.
func WithNotifier(n Notifier) CommonOption {
	return commonOption{func(c *config) error {
		if n == nil {
			return fmt.Errorf("WithNotifier(nil): want a notifier, such as that of package notify/pgx or notify/pq")
		}
		c.notifier = n
		return nil
	}}
}

// Scope is how long the locks of a candidate last.
type Scope int

const (
	// Auto is SessionScope, unless there is a transaction pooler between the program and the
	// server, or locks of sessions do nothing there. Then it is TransactionScope.
	Auto Scope = iota
	// SessionScope holds the locks until the session ends.
	SessionScope
	// TransactionScope holds them inside a transaction, which stays open while the candidate
	// leads. It works through PgBouncer in transaction mode and similar poolers, and directly.
	TransactionScope
)

// WithScope chooses how a candidate holds its locks. Default Auto. The candidates of one
// election may choose differently: they exclude each other.
//
// In transaction scope a leader keeps one of the pooler's server connections, idle in a
// transaction without a snapshot and without a transaction id, so it does not hold back
// VACUUM. If CREATE INDEX CONCURRENTLY has seen the snapshot of the election itself, the
// leader resigns, to let it go on (hooks.Requested). The lease is
// idle_in_transaction_session_timeout. A deputy keeps another server connection, so a
// candidate becomes one only if WithTakeover was given, and the retry interval is 1 s by
// default. While it leads or is the deputy, the candidate needs another connection of its
// pool for a moment.
//
// A pooler that does not track prepared statements (PgBouncer before 1.21) mixes up those of
// pgx's default mode. With such a pooler Run returns an error that wraps ErrSessionPooled and
// says so: set default_query_exec_mode=exec in the DSN. An elector of a [Session] cannot be in
// transaction scope, because a transaction cannot release one of its locks. Nor can one with
// WithSynchronousStandby.
func WithScope(s Scope) SessionOption {
	return sessionOption{func(c *config) error {
		if s != Auto && s != SessionScope && s != TransactionScope {
			return fmt.Errorf("WithScope(%d): want Auto, SessionScope or TransactionScope", s)
		}
		c.scope = s
		return nil
	}}
}

// Takeover is what a candidate does while another leads.
type Takeover int

const (
	// Deputy makes one of the candidates the deputy, if no other is: it keeps one connection,
	// and tries the lock once per deputy interval. The others try once per retry interval.
	Deputy Takeover = iota
	// Wait is Deputy, but the deputy waits in the server's queue: the server hands the lock
	// over within a millisecond of its release. The deputy's backend shows as active. Each
	// wait is shorter than what the server would log (log_lock_waits with deadlock_timeout,
	// log_min_duration_statement); where that leaves less than 100 ms, the deputy tries
	// the lock once per deputy interval instead. A deputy that stops cancels its wait: the
	// server logs an ERROR only if the wait ends at that very instant.
	Wait
	// Poll never makes the candidate the deputy. It tries the lock once per retry interval,
	// on a connection that it borrows from the pool for one statement.
	Poll
)

// WithTakeover chooses what a candidate does while another leads. Default Deputy, and Poll in
// transaction scope (WithScope). The candidates of one election may choose differently.
//
// An election has one deputy: whoever finds the lock busy and the deputy's seat, a second
// advisory lock, free. (For a moment it has two, if another candidate is elected before the
// last leader's seat is free.) A deputy that dies, freezes for a lease, becomes unhealthy or
// stops loses the seat, and the next attempt of another candidate takes it. After each change
// of leader nobody is deputy until then, and a leader that dies meanwhile is replaced by the
// next attempt.
//
// A shared session needs no seat. With Deputy it looks, once per deputy interval, whether the
// session that leads most of its elections has ended, if that is a shared one too, and then
// tries all of them at once. With Poll it does not. It cannot Wait.
func WithTakeover(t Takeover) SessionOption {
	return sessionOption{func(c *config) error {
		if t != Deputy && t != Wait && t != Poll {
			return fmt.Errorf("WithTakeover(%d): want Deputy, Wait or Poll", t)
		}
		c.takeover, c.takeoverChosen = t, true
		return nil
	}}
}

// WithDeputyInterval sets how often the deputy tries the lock, and a shared session looks
// whether the session that leads most of its elections has ended. Default 100 ms, at least
// 10 ms, at most the heartbeat interval.
func WithDeputyInterval(d time.Duration) SessionOption {
	return sessionOption{func(c *config) error {
		c.deputyInterval = d
		return check(d >= minRetry, "WithDeputyInterval", d, "want interval >= %v", minRetry)
	}}
}

// WithSynchronousStandby makes the promise hold between two primaries: if a standby is
// promoted while the old primary still runs, cut off from it, no leader there believes
// any more when one is elected on the new primary. It needs synchronous replication
// (PostgreSQL manual, 27.2.8), and every candidate of the election must have it.
//
// A term begins only after a commit that the synchronous standbys have acknowledged,
// and only such commits, one per heartbeat interval, prolong it. A candidate that has
// known the primary for less than longestLease does not campaign there yet; so after each
// failover or restart of the primary, and after a start of all candidates, nobody leads
// for that long.
// longestLease is the longest lease (WithLease) of all candidates of the election, at
// least this one's and at most 24 h. To lengthen a lease, lengthen longestLease
// everywhere first.
//
// synchronous_standby_names must list every standby that may be promoted, each by a name
// of its own, and have commits wait for all that it lists: 'FIRST 2 (s1, s2)' will do;
// 'FIRST 1 (s1, s2)', 'ANY 1 (s1, s2)' and '*' will not. While it does not, or a standby
// that it lists is away, the campaign waits and OnError receives an error that wraps
// ErrNotSynchronous. If the setting changes so during a term, the term ends cleanly, or by
// its lease if a commit waits just then. So nobody leads while a standby that is listed is
// down: have your failover manager take it off the list, as Patroni does. A standby that is
// not listed must not be promoted.
//
// While the candidate leads, the commits pin one more connection of the pool. Each writes a
// small record. A wait that is cancelled (pg_cancel_backend) is answered like one that was
// acknowledged; an answer that takes more than half of the validity is therefore not counted.
// With pg_read_all_stats the role can see, and the elector checks, how far each standby has
// got. Without it, a commit may count although it did not wait: during a checkpoint the server
// may not heed a new list yet.
//
// It excludes [TransactionScope]. An elector of a shared session cannot have it.
func WithSynchronousStandby(longestLease time.Duration) Option {
	return set(func(c *config) { c.synchronous, c.longestLease = true, longestLease })
}

// WithLockDelay has nobody elected on a server that has run, or has been a primary, for less than
// longestLease. A server whose host dies tells nobody: a leader there believes until its validity ends,
// and its work may take its drain, while the restarted server, or a promoted standby, has a new leader.
// With the option the new term begins after that. Default: off. Every candidate of the election must
// have it. longestLease is the longest lease (WithLease) of all of them, at least this one's and at most
// 24 h. To lengthen a lease, lengthen longestLease everywhere first.
//
// The server tells how long it has run, by its own clock. It proves that it has been a primary by its
// last checkpoint, if that is of its present timeline, and older than longestLease
// (pg_control_checkpoint, which any role may call unless it was revoked). Otherwise the time counts from
// when this process first saw it as a primary, through this pool. There is no exemption for the candidate
// that led last.
//
// So after each start and each promotion of the server nobody leads for longestLease, and after a start
// of all candidates for up to longestLease, if the last checkpoint is younger. Run, Start and Campaign
// wait, and OnCampaign receives hooks.TooEarly with the wait. TryRun and TryCampaign return ErrTooEarly.
// It costs one or two statements for each election, and as many for each check of the server.
//
// It does not help between two primaries that both answer: see [WithSynchronousStandby].
func WithLockDelay(longestLease time.Duration) SessionOption {
	return sessionOption{set(func(c *config) { c.delays, c.lockDelay = true, longestLease })}
}

// WithHooks adds hooks. They receive the events in the order given. It may be used more
// than once.
func WithHooks(all ...hooks.Hook) CommonOption {
	return commonOption{func(c *config) error {
		for i, h := range all {
			if err := hooks.Check(h); err != nil {
				return fmt.Errorf("WithHooks: hook %d: %w", i+1, err)
			}
		}
		c.hooks = append(c.hooks, all...)
		return nil
	}}
}

// WithGracefulRelease(false) leaves out the unlock when a term ends because of
// a shutdown: the session is closed instead, and the server frees the lock when
// it sees that. Default true. Resign always unlocks.
func WithGracefulRelease(graceful bool) Option {
	return set(func(c *config) { c.gracefulRelease = graceful })
}

// WithHold makes TryRun keep the lock for at least d from the election, after work that succeeded: when lead
// has returned nil, TryRun waits until d is over. Meanwhile the term goes on, and its context stays valid.
// ctx, Close, and the end of the term end the wait at once; TryRun still returns nil, because the work is done.
// An error of lead is returned at once. Default 0, at most 24 h. Run, Start, Campaign and
// TryCampaign ignore the hold.
//
// It is for hosts that call TryRun at the same time by their own clocks. With d above the difference of the clocks,
// and below the time between two ticks, a second host finds the lock busy, so a second run of a tick becomes unlikely. It is not
// ruled out: if the host that holds dies, or loses its session, a host whose clock is late runs the tick again.
// Package ticks does each tick once.
func WithHold(d time.Duration) ElectionOption {
	return electionOption{func(c *config) error {
		c.hold = d
		return check(0 <= d && d <= maxHold, "WithHold", d, "want 0 <= hold <= %v", maxHold)
	}}
}

// WithRequests(false) has the leader refuse requests to resign or to transfer the lock
// (RequestResign, RequestTransfer), and report them to OnError (hooks.OpRequest), for which it
// looks who asks, beside its session. Default true: any role that may connect to the database
// can ask.
func WithRequests(take bool) CommonOption {
	return commonOption{set(func(c *config) { c.takesRequests = take })}
}

// WithPriority says how much this candidate should lead: any int32, more is higher. Once it has been up and well (WithHealth,
// ReportHealth) for WithPreemptDelay, and the term of a leader of lower priority is a minute old, or that delay if it is longer, it
// asks the leader to transfer the lock, as RequestTransfer does. The leader's work returns first, and its OnDemoted receives
// hooks.Preempted. Of several candidates the first one wins. A candidate asks once for each term; if the term goes on, because the
// candidate did not come in time, say, it asks again after as long as the term had to be old.
//
// It is a preference, not a promise: the deputy may have any priority, a failover is as fast as without the option, and leadership
// then moves once more. It moves back, too, what an operator has moved by RequestTransfer.
//
// Default: none; others see 0, and the candidate asks nobody. So give every candidate of an election a priority. Leader and
// Candidates show the leader's to any role.
//
// A leader holds one advisory lock more. A follower looks who leads once per retry interval, by one statement, and needs one
// connection more while it asks: the pool must allow three, and one more with WithSynchronousStandby, or for a deputy in transaction scope. A candidate of a shared session, and so of shard.Run, cannot have a
// priority, nor one with WithRequests(false). TryRun and TryCampaign tell the priority, and ask nobody.
func WithPriority(n int32) SessionOption {
	return sessionOption{set(func(c *config) { c.prefer.chosen, c.prefer.priority = true, n })}
}

// WithPreemptDelay sets for how long a candidate with WithPriority is up and well before it asks a leader of lower priority for the lock.
// It counts from the start of the campaign, or since the candidate became healthy. Default 10 s, at least 10 ms, at most 24 h. All
// candidates of an election should have the same: a leader also refuses such requests until its own term is as old as its own delay, and at
// least a minute.
func WithPreemptDelay(d time.Duration) SessionOption {
	return sessionOption{func(c *config) error {
		c.prefer.delay = d
		return check(minRetry <= d && d <= maxRetry, "WithPreemptDelay", d, "want %v <= delay <= %v", minRetry, maxRetry)
	}}
}

func configure[O Option](election string, opts []O) (config, error) {
	c := config{lease: lease.Lease{Length: defaultLease}, readOnlyTimeout: defaultReadOnlyTimeout, gracefulRelease: true, takesRequests: true, healthPolicy: HealthPolicy{Minimum: defaultMinimum}}
	if err := CheckElection(election); err != nil {
		return c, err
	}
	for i, opt := range opts {
		if Option(opt) == nil {
			return c, fmt.Errorf("%w: option %d is nil", ErrConfig, i+1)
		}
		if err := opt.apply(&c); err != nil {
			return c, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	if c.shared && c.takeover == Wait {
		return c, fmt.Errorf("%w: WithTakeover(Wait): a shared session cannot wait for one of its locks: want Deputy or Poll", ErrConfig)
	}
	if c.scope == TransactionScope && (c.shared || c.synchronous) {
		return c, fmt.Errorf("%w: WithScope(TransactionScope): want SessionScope or Auto for a shared session, whose locks end one by one, and with WithSynchronousStandby", ErrConfig)
	}
	if err := c.prefer.complete(&c); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	c.complete(election)
	if err := c.checkLease(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return c, nil
}

// complete says why there cannot be a preference, and fills in the delay.
func (p *preferring) complete(c *config) error {
	priority := valueOf("WithPriority", p.priority)
	switch {
	case !p.chosen && p.delay != 0:
		return &OptionError{[]OptionValue{valueOf("WithPreemptDelay", p.delay)}, "want a priority, too: a candidate without one asks nobody for the lock"}
	case !p.chosen:
	case c.shared:
		return &OptionError{[]OptionValue{priority}, "a shared session, and so a member of a group of shards, cannot have a priority: its one connection " +
			"holds the locks of many elections: use elector.New for an election that should have a leader of your choice"}
	case !c.takesRequests:
		return &OptionError{[]OptionValue{priority, valueOf("WithRequests", false)}, "want one of them: a priority moves leadership by a request to the leader"}
	case p.delay == 0:
		p.delay = defaultPreemptDelay
	}
	return nil
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
	if !c.validateChosen {
		c.validateInterval = min(defaultValidate, validate.EveryBeats*c.lease.Heartbeat)
	}
	if c.backoff == (backoff.Backoff{}) {
		least := cmp.Or(c.retry, defaultBackoff)
		c.backoff = backoff.Backoff{Min: least, Max: min(backoffGrowth*least, maxRetry)}
	}
	retry, inside := defaultRetry, defaultPollRetry
	if c.takeover == Poll || c.shared {
		retry = defaultPollRetry
	}
	if c.sitsInside() {
		inside = defaultRetry
	}
	c.retry, c.retryInside = cmp.Or(c.retry, retry), cmp.Or(c.retry, inside)
	c.deputyInterval = cmp.Or(c.deputyInterval, min(defaultDeputyInterval, c.lease.Heartbeat))
	if !c.keyChosen {
		c.key = KeyFromName(election)
	}
	if c.candidateID == "" {
		host, _ := os.Hostname()
		c.candidateID = newCandidateID(host)
	}
}

// sitsInside reports whether the candidate becomes the deputy in transaction scope.
func (c *config) sitsInside() bool { return c.takeoverChosen && c.takeover != Poll }

// lookEvery is how often a shared session looks whether another has ended; 0 if it does not.
func (c *config) lookEvery() time.Duration {
	if c.takeover == Poll {
		return 0
	}
	return c.deputyInterval
}

// pins is how many connections a session pins.
func (c *config) pins() int {
	n := 1
	if c.synchronous {
		n++
	}
	if c.prefer.chosen { // a deputy may ask for the lock, on a connection more
		n++
	}
	if c.prefer.chosen && c.sitsInside() && c.scope != SessionScope { // and may have two connections
		n++
	}
	return n
}

// leaseOf is a lease of that length, with the heartbeat interval and the drain that follow
// from it.
func leaseOf(length time.Duration) lease.Lease {
	return lease.Lease{
		Length:    length,
		Heartbeat: min(max(length/heartbeatShare, minHeartbeat), maxHeartbeat),
		Drain:     length / drainShare,
	}
}

// longEnough says which lease is long enough for the heartbeat interval and the drain, also if those follow from the lease.
func longEnough(l lease.Lease) string {
	for length := l.Length.Truncate(time.Second) + time.Second; length <= maxLease; length += time.Second {
		longer := leaseOf(length)
		longer.Heartbeat, longer.Drain = max(longer.Heartbeat, l.Heartbeat), max(longer.Drain, l.Drain)
		if longer.Heartbeat <= longer.Validity()/2 {
			return fmt.Sprintf(" to %v", length)
		}
	}
	return ""
}

// checkLease says which inequality does not hold.
func (c *config) checkLease() error {
	l := c.lease
	length, heartbeat, drain := valueOf("WithLease", l.Length), valueOf("WithHeartbeatInterval", l.Heartbeat), valueOf("WithDrain", l.Drain)
	wrong := func(want string, options ...OptionValue) error { return &OptionError{options, want} }
	switch {
	case l.Length < minLease || l.Length > maxLease:
		return wrong(fmt.Sprintf("want %v <= lease <= %v", minLease, maxLease), length)
	case l.Length%time.Millisecond != 0: // the server counts in milliseconds
		return wrong("want whole milliseconds", length)
	case l.Drain < 0:
		return wrong("want drain >= 0", drain)
	case l.Heartbeat < minHeartbeat:
		return wrong(fmt.Sprintf("want heartbeat interval >= %v", minHeartbeat), heartbeat)
	case l.Heartbeat > l.Validity()/2: // twice the interval may be more than a Duration holds
		return wrong(fmt.Sprintf("want 2*heartbeat <= lease - lease/10 - drain, but that is %v: "+
			"shorten the heartbeat interval or the drain, or lengthen the lease%s", l.Validity(), longEnough(l)), heartbeat, length, drain)
	case c.validateInterval > validate.EveryBeats*l.Heartbeat:
		return wrong("want interval <= ten heartbeat intervals, which is how often a leader looks at the least", valueOf("WithValidateInterval", c.validateInterval), heartbeat)
	case c.deputyInterval > l.Heartbeat:
		return wrong("want deputy interval <= heartbeat interval", valueOf("WithDeputyInterval", c.deputyInterval), heartbeat)
	case c.synchronous && (c.longestLease < l.Length || c.longestLease > maxLease):
		return wrong(fmt.Sprintf("want the longest lease of all candidates: %v <= longest lease <= %v", l.Length, maxLease),
			valueOf("WithSynchronousStandby", c.longestLease), length)
	case c.delays && (c.lockDelay < l.Length || c.lockDelay > maxLease):
		return wrong(fmt.Sprintf("want the longest lease of all candidates: %v <= longest lease <= %v", l.Length, maxLease),
			valueOf("WithLockDelay", c.lockDelay), length)
	}
	return nil
}

func between(least, d, most time.Duration, option string, args ...any) error {
	if d < least || d > most {
		return fmt.Errorf(option+": want %v <= %v <= %v", append(args, least, d, most)...)
	}
	return nil
}

// checkCandidateID says what keeps an id from being shown in application_name as it is.
func checkCandidateID(id string) error {
	if id == "" || len(id) > maxCandidateID {
		return fmt.Errorf("want 1 <= length <= %d bytes, but it is %d", maxCandidateID, len(id))
	}
	for i := range len(id) {
		if id[i] < ' ' || id[i] > '~' {
			return fmt.Errorf("want printable ASCII, but byte %d is %#x: PostgreSQL would replace it in application_name", i, id[i])
		}
	}
	if strings.TrimSpace(id) != id {
		return fmt.Errorf("want no space at the ends, which would look like another candidate's id: trim %q", id)
	}
	return nil
}

// newCandidateID names a candidate after its host and process.
func newCandidateID(host string) string {
	if host == "" {
		host = "host"
	}
	printable := func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '-'
		}
		return r
	}
	var random [3]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	suffix := fmt.Sprintf("-%d-%s", os.Getpid(), hex.EncodeToString(random[:]))
	host = strings.Map(printable, host)
	return host[:min(len(host), maxCandidateID-len(suffix))] + suffix
}

// KeyFromName derives an election's advisory lock key from its name: the first
// 8 bytes, big-endian, of SHA-256 over "pgelector:" and the name. PostgreSQL
// computes the same with
//
//	SELECT pg_catalog.concat('x', pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(
//	    pg_catalog.convert_to(pg_catalog.concat('pgelector:', $1::pg_catalog.text), 'UTF8')), 'hex'), 16))::bit(64)::bigint
//
// Two names that share a key would be one election; with 64 bits that is a
// chance of about one in 10^13 for a thousand names.
func KeyFromName(election string) int64 {
	return lockkey.FromName(election)
}
