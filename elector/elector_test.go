package elector

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/inbox"
	"github.com/pgelector/pgelector/internal/pgerr"
)

func TestTheReasonOfACause(t *testing.T) {
	for _, c := range []struct {
		cause error
		want  hooks.Reason
		lost  bool
	}{
		{election.Because(election.Resigned, ErrResigned), hooks.Resigned, false},
		{election.Because(election.Shutdown, ErrStopped), hooks.Shutdown, false},
		{election.Because(election.LeadFailed, pgerr.Wrap(ErrLeadFailed, io.EOF)), hooks.LeadFailed, false},
		{election.Because(election.Shutdown, ErrLeaseExpired), hooks.Shutdown, false}, // what the caller's cause wraps is ignored
		{fmt.Errorf("wrapped: %w", election.Because(election.Reason(hooks.Unhealthy), ErrUnhealthy)), hooks.Unhealthy, false},
		{fmt.Errorf("%w: no answer", ErrLeaseExpired), hooks.LeaseExpired, true},
		{pgerr.Wrap(ErrSessionLost, io.EOF), hooks.SessionLost, true},
		{io.EOF, hooks.SessionLost, true},
	} {
		if got := reasonOf(c.cause); got != c.want || lost(c.cause) != c.lost {
			t.Errorf("%v: %s, lost %v", c.cause, got, lost(c.cause))
		}
	}
}

func TestOnlyARollbackInsideTheTermIsRetryable(t *testing.T) {
	state := &pgconn.PgError{Code: "40001"}
	rolledBack := pgerr.Wrap(ErrRolledBack, state)
	deadlock := pgerr.Wrap(ErrRolledBack, &pgconn.PgError{Code: "40P01"})
	for _, c := range []struct {
		err  error
		want bool
	}{
		{rolledBack, true},
		{deadlock, true},
		{state, false},
		{pgerr.Wrap(ErrOutcomeUnknown, state), false},
		{pgerr.Wrap(ErrNotLeader, rolledBack), false},
		{ErrRolledBack, false},
		{nil, false},
	} {
		if got := Retryable(c.err); got != c.want {
			t.Errorf("Retryable(%v) = %v", c.err, got)
		}
	}
}

// While a hook is slow, a newer heartbeat replaces one that waits. Other events are kept.
func TestOnlyHeartbeatsThatWaitAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		var got []string
		a := newAnnouncer(hooks.Origin{}, []hooks.Hook{hooks.Funcs{
			Error: func(_ context.Context, f hooks.Failure) {
				<-slow
				got = append(got, string(f.Op))
			},
			Heartbeat: func(_ context.Context, h hooks.Heartbeat) { got = append(got, h.Took.String()) },
		}}, leaseOf(defaultLease))
		fail := func(op hooks.Op) { a.post(a.failure(t.Context(), hooks.Failure{Op: op})) }
		fail("slow")
		a.heartbeat(t.Context(), hooks.Heartbeat{Took: 1})
		fail("a")
		a.heartbeat(t.Context(), hooks.Heartbeat{Took: 2})
		a.heartbeat(t.Context(), hooks.Heartbeat{Took: 3})
		fail("b")
		fail("c")
		close(slow)
		a.flush()
		if want := []string{"slow", "1ns", "a", "3ns", "b", "c"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestEachEventHasItsOriginAndTime(t *testing.T) {
	origin := hooks.Origin{Election: "orders", Key: 7, CandidateID: "web-1"}
	began := time.Now()
	seen := 0
	check := func(got hooks.Origin, at time.Time) {
		seen++
		if got != origin || at.Before(began) || at.After(time.Now()) {
			t.Errorf("event %d: got %+v, %v", seen, got, at)
		}
	}
	a := newAnnouncer(origin, []hooks.Hook{hooks.Funcs{
		Campaign:      func(_ context.Context, c hooks.Campaign) { check(c.Origin, c.At) },
		Elected:       func(_ context.Context, e hooks.Elected) { check(e.Origin, e.At) },
		LeaderChanged: func(_ context.Context, c hooks.LeaderChanged) { check(c.Origin, c.At) },
		Heartbeat:     func(_ context.Context, h hooks.Heartbeat) { check(h.Origin, h.At) },
		Error:         func(_ context.Context, f hooks.Failure) { check(f.Origin, f.At) },
		Demoted:       func(_ context.Context, d hooks.Demoted) { check(d.Origin, d.At) },
	}}, leaseOf(defaultLease))
	ctx := t.Context()
	a.announce(a.campaign(ctx, hooks.Campaign{}))
	a.announce(a.elected(ctx, hooks.Elected{At: time.Now()}, func(error) {}))
	a.announce(a.leaderChanged(ctx, hooks.LeaderChanged{}))
	a.heartbeat(ctx, hooks.Heartbeat{})
	a.announce(a.failure(ctx, hooks.Failure{}))
	a.announce(a.demoted(ctx, hooks.Demoted{At: time.Now()}))
	if seen != 6 {
		t.Errorf("got %d events, want 6", seen)
	}
}

// In transaction scope a candidate can lead again on the same backend.
func TestTwoAnswersOfTheServerAreOfOneTermIfTheySayTheSame(t *testing.T) {
	since := time.Now()
	leader := holder.Holder{PID: 7, CandidateID: "web-1", ElectedAt: since}
	for _, c := range []struct {
		now  holder.Holder
		want bool
	}{
		{leader, true},
		{holder.Holder{PID: 7, CandidateID: "web-1", ElectedAt: since.UTC()}, true},
		{holder.Holder{PID: 8, CandidateID: "web-1", ElectedAt: since}, false},
		{holder.Holder{PID: 7, CandidateID: "web-2", ElectedAt: since}, false},
		{holder.Holder{PID: 7, CandidateID: "web-1", ElectedAt: since.Add(time.Second)}, false},
		{holder.Holder{PID: 7}, true}, // it does not say yet
		{holder.Holder{PID: 8}, false},
	} {
		if leader.GoesOn(c.now) != c.want || c.now.GoesOn(leader) != c.want {
			t.Errorf("%+v: got %t", c.now, !c.want)
		}
	}
}

func TestTheCauseOfATermThatEndsOnRequestSaysWhoAskedForWhat(t *testing.T) {
	key := KeyFromName("orders")
	for _, c := range []struct {
		takes   bool
		request inbox.Request
		want    string // "" if it is refused
	}{
		{true, inbox.Request{Key: inbox.ResignKey(key), Application: "psql", Role: "admin", Addr: "10.0.0.7", PID: 12}, `requested by role "admin" (psql) from 10.0.0.7, backend 12`},
		{true, inbox.Request{Key: inbox.ResignKey(key), Application: "psql", Role: "admin", PID: 12}, `requested by role "admin" (psql), backend 12`},
		{false, inbox.Request{Key: inbox.ResignKey(key), Role: "admin", PID: 12}, ""},
		{true, inbox.Request{Key: inbox.TransferKey(key), Application: "web-1", Role: "admin", PID: 12}, ""}, // to itself
		{false, inbox.Request{Key: 0, Application: "psql", Role: "admin", PID: 12}, `requested, so that CREATE INDEX CONCURRENTLY can go on, by role "admin" (psql), backend 12`},
	} {
		synctest.Test(t, func(t *testing.T) {
			server, refused := electortest.NewServer(), error(nil)
			defer server.Close()
			pool := server.Open()
			defer pool.Close()
			e, err := New(pool, "orders", WithCandidateID("web-1"), WithRequests(c.takes),
				WithHooks(hooks.Funcs{Error: func(_ context.Context, f hooks.Failure) { refused = f.Err }}))
			if err != nil {
				t.Fatal(err)
			}
			term, err := e.Campaign(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			withdrawn := term.answer(c.request, nil)
			e.announcer.flush()
			switch cause := context.Cause(term.ctx); {
			case c.want == "":
				if cause != nil || refused == nil {
					t.Errorf("%+v: refused %v, and the term has ended: %v", c.request, refused, cause)
				}
			case !errors.Is(cause, ErrResigned) || !strings.HasSuffix(cause.Error(), c.want) || reasonOf(cause) != hooks.Requested:
				t.Errorf("got  %v\nwant %s", cause, c.want)
			}
			withdrawn()
			if err := term.Resign(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// It is taken up just as the term ends by itself. The one who asks sees only the session, which may lead
// again at once. So it needs an answer.
func TestARequestToATermThatHasJustEndedIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		pool := server.Open()
		defer pool.Close()
		session, err := NewSession(pool)
		if err != nil {
			t.Fatal(err)
		}
		e, err := session.Elector("orders")
		if err != nil {
			t.Fatal(err)
		}
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := term.Resign(t.Context()); err != nil {
			t.Error(err)
		}
		const answer = 77
		answered := func() bool {
			synctest.Wait()
			return slices.ContainsFunc(server.Locks(), func(l electortest.Lock) bool { return l.Guard && l.Key == answer })
		}
		withdrawn := term.answer(inbox.Request{Key: inbox.ResignKey(KeyFromName("orders")), Answer: answer}, nil)
		if !answered() {
			t.Errorf("nobody holds the lock that answers: %+v", server.Locks())
		}
		if withdrawn(); answered() {
			t.Error("the answer outlives the request")
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A shared session outlives the term, and its heartbeat may come just as the term ends.
func TestNothingOfATermIsAnnouncedOnceItHasEnded(t *testing.T) {
	var got []string
	n := newCandidate(new(sql.DB), "orders", config{lease: leaseOf(time.Minute), hooks: []hooks.Hook{hooks.Funcs{
		Error:     func(context.Context, hooks.Failure) { got = append(got, "error") },
		Heartbeat: func(context.Context, hooks.Heartbeat) { got = append(got, "heartbeat") },
	}}})
	ctx, end := context.WithCancel(t.Context())
	defer end()
	term := &Term{candidate: n, ctx: ctx}
	for range 2 {
		n.announcer.heartbeat(ctx, hooks.Heartbeat{})
		term.answer(inbox.Request{Key: inbox.ResignKey(n.key)}, nil)
		n.announcer.flush()
		end()
	}
	if want := []string{"heartbeat", "error"}; !slices.Equal(got, want) {
		t.Errorf("announced %q, want %q", got, want)
	}
}

// listens is a hook with OnError alone.
type listens func()

func (l listens) OnError(context.Context, hooks.Failure) { l() }

// A failure that is reported later is dropped.
func TestNothingIsAnnouncedAfterOnClosed(t *testing.T) {
	var got []string
	a := newAnnouncer(hooks.Origin{}, []hooks.Hook{
		listens(func() { got = append(got, "error") }),
		hooks.Funcs{Closed: func(context.Context, hooks.Closed) { got = append(got, "closed") }},
	}, leaseOf(defaultLease))
	for range 2 {
		a.post(a.failure(t.Context(), hooks.Failure{}))
		a.close()
	}
	if want := []string{"error", "closed"}; !slices.Equal(got, want) {
		t.Errorf("announced %q, want %q", got, want)
	}
}

// Of its panic hear only those that are still to be closed.
func TestAHookThatWasClosedHearsNothingMore(t *testing.T) {
	var got []string
	hook := func(name string, closes func()) hooks.Hook {
		return hooks.Funcs{
			Error:  func(context.Context, hooks.Failure) { got = append(got, name+" hears") },
			Closed: func(context.Context, hooks.Closed) { got = append(got, name+" closes"); closes() },
		}
	}
	fine := func() {}
	a := newAnnouncer(hooks.Origin{}, []hooks.Hook{hook("a", fine), hook("b", func() { panic("b") }), hook("c", runtime.Goexit), hook("d", fine)}, leaseOf(defaultLease))
	a.close()
	if want := []string{"a closes", "b closes", "c hears", "d hears", "c closes", "d closes"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
