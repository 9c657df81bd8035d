package elector

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/deputy"
	"github.com/pgelector/pgelector/internal/handover"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/inbox"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/preference"
	"github.com/pgelector/pgelector/internal/wakeup"
)

// RequestResign asks the leader of an election to resign, from any process whose role may
// connect to the database. The leader hears at its next heartbeat, or at once with a
// notifier. It cancels its term's context with a cause that says who asked, waits for its
// work, and releases the lock. RequestResign then returns who leads next; a zero Leader if
// nobody does within five seconds. It may be the same candidate again.
//
// ErrNoLeader is returned if nobody leads, and on a standby. If ctx ends before the request is made, the error
// wraps its cause; if it ends after that and before the leader has let go, RequestResign
// returns that leader and ErrUnanswered. The request ends with the call, or with the process
// that made it, and no later leader answers it; but in transaction scope one whose lock is on
// the same backend may, if the caller stalls.
//
// Under the leader's own work it would wait for itself. With the context that lead got, or a
// function of RunIfLeader, or one below, it returns ErrConfig at once: return from the work instead.
//
// The pool needs two connections. opts say which election is meant: WithKey.
func RequestResign(ctx context.Context, pool *sql.DB, election string, opts ...RequestOption) (Leader, error) {
	return request(ctx, pool, election, "", opts)
}

// RequestTransfer is RequestResign, but the leader transfers the lock to the candidate of
// that id, as by Term.TransferTo: its term goes on if the candidate does not come within one lease,
// or the request ends before the work was told to stop. The error wraps ErrNoSuccessor if the
// candidate does not lead in the end, and the Leader is who does: if that is still the same,
// RequestResign has it resign anyway. A leader prepares one transfer at a time; other requests
// wait their turn. If the candidate leads already, RequestTransfer returns at once.
func RequestTransfer(ctx context.Context, pool *sql.DB, election, candidateID string, opts ...RequestOption) (Leader, error) {
	if err := checkCandidateID(candidateID); err != nil {
		return Leader{}, fmt.Errorf("%w: RequestTransfer to %q: %w", ErrConfig, candidateID, err)
	}
	return request(ctx, pool, election, candidateID, opts)
}

// pollRequest is how often the one who asks looks whether the leader has let go.
var pollRequest = backoff.Backoff{Min: 20 * time.Millisecond, Max: 250 * time.Millisecond}

// yields reports whether the candidate waits after a lost term, because an administrator has ended its session and a
// deputy is there to lead. The end of the server has the same SQLSTATE; then nobody answers, or there is no deputy.
func (e *Elector) yields(ctx context.Context, cause error) bool {
	if e.shared || pgerr.State(cause) != "57P01" {
		return false
	}
	followers, err := deputy.FollowersOf(ctx, e.pool, e.key, min(e.lease.Heartbeat, max(e.retryEvery(), 2*pollRequest.Max)))
	return err == nil && slices.ContainsFunc(followers, func(f deputy.Follower) bool { return f.Deputy })
}

// nextLeaderWait is how long a request waits for the next leader.
const nextLeaderWait = 5 * time.Second

func request(ctx context.Context, pool *sql.DB, election, successor string, opts []RequestOption) (Leader, error) {
	if pool == nil {
		return Leader{}, errNoPool
	}
	c, err := configure(election, opts)
	if err != nil {
		return Leader{}, err
	}
	if err := pooled.CheckSize(pool, 1); err != nil {
		return Leader{}, err
	}
	leader, held, err := holder.Of(ctx, pool, c.key, c.lease.Length)
	switch {
	case err != nil:
		return Leader{}, fmt.Errorf("elector: ask who leads: %w", err)
	case !held:
		return Leader{}, noLeader(leader)
	case successor != "" && successor == leader.CandidateID:
		return leaderOf(leader), nil
	}
	if t, inside := ctx.Value(leads{c.key}).(*Term); inside && t.lock.Session().PID() == leader.PID && t.candidateID == leader.CandidateID {
		return leaderOf(leader), fmt.Errorf("%w: a request from the work of the leader itself, which would wait for its own return: "+
			"return from lead, or call Term.TransferTo", ErrConfig)
	}
	if err := askLeader(ctx, pool, c, leader, successor, nil); err != nil {
		return leaderOf(leader), err
	}
	next, err := nextLeader(ctx, pool, c)
	if err == nil && successor != "" && next.CandidateID != successor {
		err = fmt.Errorf("%w: %q did not come in time", ErrNoSuccessor, successor)
	}
	return next, err
}

// askLeader returns nil once the leader's session does not hold the lock any more, or says that it
// has let go of it, or can do no more. The request tells the priority of the successor, unless that is nil.
func askLeader(ctx context.Context, pool *sql.DB, c config, leader holder.Holder, successor string, priority *int32) error {
	key := inbox.ResignKey(c.key)
	if successor != "" {
		key = inbox.TransferKey(c.key)
	}
	asking, err := inbox.Send(ctx, pool, leader.PID, key, successor, priority)
	if err != nil {
		return fmt.Errorf("elector: make a request to the leader: %w", pgerr.Explain(err))
	}
	defer asking.Withdraw()
	for n, told := 1, false; ; n++ {
		rung, answered, err := asking.Ring(ctx) // again: the server ends a request whose maker says nothing
		if answered {
			return nil
		}
		if err == nil && rung && !told {
			told = true
			wakeup.NewSender(pool, NotifyChannel, c.lease.Length).Send(ctx, notifyPatience, payload(eventRequest, c.key))
		}
		if err == nil {
			now, held, failed := asking.Holder(ctx, c.key)
			if failed == nil && (!held || !leader.GoesOn(now)) {
				return nil
			}
			err = failed
		}
		if ctx.Err() != nil || err == nil && !backoff.Sleep(ctx, pollRequest.After(n)) {
			waits := ""
			if successor != "" {
				waits = fmt.Sprintf("it may wait for %q, or first for others, for up to one lease each, ", successor)
			}
			return fmt.Errorf("%w: candidate %q, backend %d: %sit may stand still, its work may not return (does it wait for this very call?), or it takes no requests (WithRequests): "+
				"end its session if it must go (pgelector evict): %w", ErrUnanswered, leader.CandidateID, leader.PID, waits, context.Cause(ctx))
		}
		if err != nil {
			return fmt.Errorf("elector: wait for the leader to let go: %w", err)
		}
	}
}

// nextLeader is who leads next, or zero if that takes too long.
func nextLeader(ctx context.Context, pool *sql.DB, c config) (Leader, error) {
	ctx, cancel := context.WithTimeout(ctx, nextLeaderWait)
	defer cancel()
	for n := 1; ; n++ {
		leader, held, err := holder.Of(ctx, pool, c.key, c.lease.Length)
		switch {
		case held:
			return leaderOf(leader), nil
		case err != nil && ctx.Err() == nil:
			return Leader{}, fmt.Errorf("elector: ask who leads: %w", err)
		case !backoff.Sleep(ctx, pollRequest.After(n)):
			return Leader{}, nil
		}
	}
}

// A hearer takes up requests.
type hearer = func([]inbox.Request)

// hear takes up the requests that are made of the term, each once, and drops those that are not
// made any more. A term that begins while a request still stands that an earlier term has answered
// is not meant by it.
func (e *Elector) hear(all []inbox.Request) {
	e.mu.Lock()
	before, standing := e.requests, make(map[string]func(), len(all))
	e.requests = standing
	e.mu.Unlock()
	for _, r := range all {
		if r.Key != 0 && r.Key != inbox.ResignKey(e.key) && r.Key != inbox.TransferKey(e.key) {
			continue
		}
		withdrawn := before[r.Transaction]
		if t := e.term.Load(); withdrawn == nil && t != nil && t.ctx.Err() == nil { // else the lock is at its barrier, say
			withdrawn = t.answer(r, priorityOf(r, all))
		}
		if withdrawn != nil {
			standing[r.Transaction] = withdrawn
		}
	}
	for transaction, withdrawn := range before {
		if standing[transaction] == nil {
			withdrawn()
		}
	}
}

// answer takes up a request. priority is the successor's, if the requester has told it; else nil. answer returns nil if the term cannot
// take up the request yet, and otherwise a function to be called when the request is withdrawn.
func (t *Term) answer(r inbox.Request, priority *int32) (withdrawn func()) {
	transfer := r.Key == inbox.TransferKey(t.key)
	by, successor := describe(r, transfer), r.Application
	refused := error(nil)
	switch {
	case r.Key == 0: // it would wait as long as the term goes on
	case !t.takesRequests:
		refused = fmt.Errorf("elector: refused, as WithRequests(false) says: %s", by)
	case transfer:
		refused = checkSuccessor(successor, t.candidateID)
	}
	if refused != nil {
		t.reportRequest(refused)
		return func() {}
	}
	reason, cause := hooks.Requested, fmt.Errorf("%w: %s", ErrResigned, by)
	if transfer && priority != nil {
		if !t.yieldsTo(*priority) {
			stands, withdraw := context.WithCancel(context.Background())
			go handover.Answer(t.lock, r.Answer, stands)
			return withdraw
		}
		reason, cause = hooks.Preempted, fmt.Errorf("%w: %s has priority %d, this candidate %d", ErrResigned, successor, *priority, t.prefer.priority)
	}
	if transfer && !t.requested.TryLock() {
		return nil
	}
	stands, withdraw := context.WithCancel(context.Background())
	if transfer {
		go t.transferOnRequest(stands, r, reason, cause)
	} else {
		t.end(hooks.Requested, cause) // or it has just ended for another reason
		go t.tellEnded(stands, r)
	}
	return withdraw
}

// describe says who asks for what.
func describe(r inbox.Request, transfer bool) string {
	what, application := "requested", fmt.Sprintf(" (%s)", r.Application)
	switch {
	case transfer:
		what, application = fmt.Sprintf("requested in favor of %q", r.Application), ""
	case r.Key == 0:
		what = "requested, so that CREATE INDEX CONCURRENTLY can go on,"
	}
	from := ""
	if r.Addr != "" {
		from = " from " + r.Addr
	}
	return fmt.Sprintf("%s by role %q%s%s, backend %d", what, r.Role, application, from, r.PID)
}

// transferOnRequest is TransferTo for as long as the request stands. It does not say that the work
// has returned, and if the term goes on, it tells the one who asks.
func (t *Term) transferOnRequest(stands context.Context, r inbox.Request, reason hooks.Reason, cause error) {
	defer t.requested.Unlock()
	absent := t.transfer(stands, r.Application, reason, cause)
	switch {
	case t.endIfOver() != nil:
		t.tellEnded(stands, r)
	case stands.Err() == nil:
		t.reportRequest(fmt.Errorf("%w, and the term goes on: %w: %s", ErrNoSuccessor, absent, describe(r, true)))
		handover.Answer(t.lock, r.Answer, stands)
	}
}

// tellEnded tells the one who asks once the term has let go of its lock, if the session goes on: it
// may lead again soon, and others see only the session.
func (t *Term) tellEnded(stands context.Context, r inbox.Request) {
	if <-t.done; !t.lock.IsOwn() {
		handover.Answer(t.lock, r.Answer, stands)
	}
}

func (t *Term) reportRequest(err error) {
	a := t.announcer
	a.enqueue(announcement{term: t.ctx, call: a.failure(t.ctx, hooks.Failure{Op: hooks.OpRequest, Err: err})})
}

// yieldsTo reports whether the term ends in favor of a candidate of that priority.
func (t *Term) yieldsTo(priority int32) bool {
	return priority > t.prefer.priority && time.Since(t.ElectedAt()) >= preference.Due(t.prefer.delay)
}

// priorityOf returns the priority that the requester tells beside a request; nil if it tells none.
func priorityOf(r inbox.Request, all []inbox.Request) *int32 {
	for _, other := range all {
		if n, told := preference.Told(other.Key); told && other.Transaction == r.Transaction {
			return &n
		}
	}
	return nil
}
