package sqlmock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

var holdsLock = statement{"HoldsLock", values(true, sessionPID)}

func TestVerifyAsksTheServerAndRenewsTheTerm(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		holdsLock.expect(mock, fault{after: 500 * time.Millisecond})
		expectResign(mock)
		e, _ := newElector(t, pool)
		term := campaign(t, e)
		time.Sleep(time.Second)
		sent := time.Now()
		wantError(t, term.Verify(t.Context()))
		if !term.RenewedAt().Equal(sent) || !term.Deadline().Equal(sent.Add(7*time.Second)) {
			t.Errorf("sent %v, renewed at %v, until %v", sent, term.RenewedAt(), term.Deadline())
		}
		resign(t, term)
		wantError(t, term.Verify(t.Context()), elector.ErrNotLeader, elector.ErrResigned)
	})
}

func TestAFaultOfVerifyEndsTheTerm(t *testing.T) {
	faults := append([]fault{badAnswer}, anyFault...)
	for _, f := range faults {
		bubble(t, f.name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			holdsLock.expect(mock, f)
			e, rec := newElector(t, pool)
			term := campaign(t, e)
			settle() // OnElected was called
			err := term.Verify(t.Context())
			wantError(t, err, elector.ErrNotLeader)
			if f.want != nil {
				wantError(t, err, f.want)
			}
			if e.IsLeader() || term.Context().Err() == nil {
				t.Error("still leading")
			}
			wantFailures(t, rec, hooks.OpHeartbeat)
			reason := hooks.SessionLost
			if errors.Is(err, elector.ErrLeaseExpired) {
				reason = hooks.LeaseExpired
			}
			wantDemoted(t, rec, reason)
		})
	}
}

func TestVerifyEndsATermWhoseLockIsGone(t *testing.T) {
	for name, answer := range map[string][]any{
		"not held":        {false, sessionPID},
		"another backend": {true, sessionPID + 1},
	} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			query(mock, "HoldsLock").WillReturnRows(row(answer[0], answer[1]))
			if name == "another backend" {
				query(mock, "EvictHolder").WillReturnRows(row(true))
			}
			e, rec := newElector(t, pool)
			term := campaign(t, e)
			settle() // OnElected was called
			wantError(t, term.Verify(t.Context()), elector.ErrNotLeader, elector.ErrSessionLost)
			wantDemoted(t, rec, hooks.SessionLost)
		})
	}
}

func TestACallerOfVerifyThatLosesPatienceDoesNotEndTheTerm(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		holdsLock.expect(mock, fault{after: time.Second})
		expectHeartbeat(mock)
		expectResign(mock)
		e, rec := newElector(t, pool)
		term := campaign(t, e)
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		wantError(t, term.Verify(impatient), context.DeadlineExceeded)
		time.Sleep(3 * time.Second)
		if !term.Valid() {
			t.Errorf("the term has ended: %v", context.Cause(term.Context()))
		}
		resign(t, term)
		wantFailures(t, rec)
	})
}

// A term that was resigned, or shut down, still holds its lock until lead has
// returned: a Verify under way must not end its session.
func TestAVerifyUnderWayAtAShutdownLeavesTheLockToLead(t *testing.T) {
	contexts := map[string]func(*testing.T, context.Context) context.Context{
		"with the term's context": func(_ *testing.T, ctx context.Context) context.Context { return ctx },
		"with one of its own":     func(t *testing.T, _ context.Context) context.Context { return t.Context() },
	}
	for name, choose := range contexts {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			holdsLock.expect(mock, fault{after: time.Second})
			expectHeartbeats(mock, 2) // while lead winds down
			expectResign(mock)
			e, rec := newElector(t, pool)
			ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer stop()
			err := e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
				wantError(t, term.Verify(choose(t, ctx)), elector.ErrNotLeader, context.DeadlineExceeded)
				time.Sleep(4 * time.Second)
				return nil
			})
			wantError(t, err, context.DeadlineExceeded)
			wantFailures(t, rec, hooks.OpWork)
			wantDemoted(t, rec, hooks.Shutdown)
		})
	}
}

// The error says what the server has said, and none of its parts is missing.
func TestVerifySaysWhatTheServerSaid(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		query(mock, "HoldsLock").WillReturnRows(row(false, sessionPID))
		e, _ := newElector(t, pool)
		if err := campaign(t, e).Verify(t.Context()); !contains(err, "does not hold the lock") {
			t.Errorf("got %v", err)
		}
	})
}

// A lock that the server says is gone is never taken for held, also if the caller's
// context ends in that instant.
func TestVerifyWhoseContextEndsWithTheAnswerBelievesIt(t *testing.T) {
	for range 50 {
		bubble(t, "", func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			query(mock, "HoldsLock").WillDelayFor(time.Second).WillReturnRows(row(false, sessionPID))
			e, _ := newElector(t, pool)
			term := campaign(t, e)
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			if err := term.Verify(ctx); err == nil {
				t.Error("verified")
			}
			leave(t, mock, term)
		})
	}
}

// A term that has ended is not asked about, while its work winds down.
func TestVerifyOfATermThatHasEndedAsksNothing(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectResign(mock)
		e, _ := newElector(t, pool)
		ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer stop()
		wantError(t, e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
			<-ctx.Done()
			wantError(t, term.Verify(t.Context()), elector.ErrNotLeader, context.DeadlineExceeded)
			return nil
		}), context.DeadlineExceeded)
	})
}
