package sqlmock_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

var unlock = statement{"Unlock", values(true)}

func TestResignReturnsNilOnlyIfTheLockIsKnownToBeFree(t *testing.T) {
	for _, f := range append([]fault{badAnswer}, anyFault...) {
		bubble(t, f.name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			unlock.expect(mock, f)
			e, rec := newElector(t, pool)
			term := campaign(t, e)
			err := term.Resign(t.Context())
			wantError(t, err, elector.ErrSessionLost)
			if f.want != nil {
				wantError(t, err, f.want)
			}
			if again := term.Resign(t.Context()); again != err {
				t.Errorf("the second Resign: %v", again)
			}
			wantFailures(t, rec, hooks.OpRelease)
			wantError(t, rec.Failures()[0].Err, err)
			wantDemoted(t, rec, hooks.Resigned)
			if n := pool.Stats().InUse; n != 1 { // the mock's own: the session is discarded all the same
				t.Errorf("%d connections are in use", n)
			}
		})
	}
	bubble(t, "not released", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		query(mock, "Unlock").WillReturnRows(row(false))
		e, rec := newElector(t, pool)
		wantError(t, campaign(t, e).Resign(t.Context()), elector.ErrSessionLost)
		wantFailures(t, rec, hooks.OpRelease)
	})
	bubble(t, "slow", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		unlock.expect(mock, fault{after: 3 * time.Second})
		e, rec := newElector(t, pool, elector.WithHeartbeatInterval(3500*time.Millisecond))
		resign(t, campaign(t, e))
		wantFailures(t, rec)
	})
}

func TestAFaultOfTheUnlockIsNotTheErrorOfRun(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		unlock.expect(mock, anyError[1])
		e, rec := newElector(t, pool)
		wantError(t, e.Run(patience(t), func(context.Context, *elector.Term) error { return nil }))
		wantFailures(t, rec, hooks.OpRelease)
		wantError(t, rec.Failures()[0].Err, errPgx)
	})
}

func TestResignTellsThatTheTermHadEndedOtherwise(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		heartbeat.expect(mock, anyError[2])
		e, rec := newElector(t, pool)
		term := campaign(t, e)
		<-term.Context().Done()
		for range 2 {
			wantError(t, term.Resign(t.Context()), elector.ErrNotLeader, elector.ErrSessionLost, errPq)
		}
		wantDemoted(t, rec, hooks.SessionLost)
	})
}

func TestAFailedUnlockIsToldAfterTheDemotion(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		unlock.expect(mock, anyError[0])
		e, rec := newElector(t, pool)
		_ = campaign(t, e).Resign(t.Context())
		events := slices.DeleteFunc(rec.Events(), func(e any) bool { // that nobody leads may be told already
			_, changed := e.(hooks.LeaderChanged)
			return changed
		})
		_, demoted := events[len(events)-2].(hooks.Demoted)
		failure, ok := events[len(events)-1].(hooks.Failure)
		if !demoted || !ok || failure.Op != hooks.OpRelease {
			t.Errorf("events: %+v", events)
		}
	})
}

func TestWithoutGracefulReleaseAShutdownClosesTheSessionAndAResignUnlocks(t *testing.T) {
	bubble(t, "shutdown", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		e, rec := newElector(t, pool, elector.WithGracefulRelease(false))
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		var term *elector.Term
		wantError(t, e.Run(ctx, func(ctx context.Context, t *elector.Term) error {
			term = t
			<-ctx.Done()
			return nil
		}), context.DeadlineExceeded)
		wantError(t, term.Resign(t.Context()), elector.ErrNotLeader)
		wantFailures(t, rec)
		wantDemoted(t, rec, hooks.Shutdown)
		if n := pool.Stats().InUse; n != 1 {
			t.Errorf("%d connections are in use", n)
		}
	})
	bubble(t, "resign", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectResign(mock)
		e, _ := newElector(t, pool, elector.WithGracefulRelease(false))
		resign(t, campaign(t, e))
	})
}
