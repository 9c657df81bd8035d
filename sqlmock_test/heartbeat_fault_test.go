package sqlmock_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

var heartbeat = statement{"Ping", values(sessionPID, false)}

// heartbeatFaults are what ends a session, with what is to be said about it.
var heartbeatFaults = []struct {
	name   string
	fault  fault
	answer []any
	want   []error
	reason hooks.Reason
	at     time.Duration // from the beginning of the term to its end
}{
	{"plain error", fault{err: errPlain}, nil, []error{elector.ErrSessionLost, errPlain}, hooks.SessionLost, 4 * time.Second},
	{"terminated, by pgx", fault{err: errTerminated}, nil, []error{elector.ErrSessionLost, errTerminated}, hooks.SessionLost, 4 * time.Second},
	{"terminated, by lib/pq", fault{err: errIdle}, nil, []error{elector.ErrSessionLost, errIdle}, hooks.SessionLost, 4 * time.Second},
	{"connection gone", anyError[4], nil, []error{elector.ErrSessionLost, anyError[4].err}, hooks.SessionLost, 4 * time.Second},
	{"late error", fault{err: errPlain, after: time.Second}, nil, []error{elector.ErrSessionLost, errPlain}, hooks.SessionLost, 5 * time.Second},
	{"no answer", noAnswer, nil, []error{elector.ErrLeaseExpired}, hooks.LeaseExpired, 9 * time.Second},
	{"another backend", fault{}, []any{sessionPID + 1, false}, []error{elector.ErrSessionLost, elector.ErrSessionPooled}, hooks.SessionLost, 4 * time.Second},
	{"in recovery", fault{}, []any{sessionPID, true}, []error{elector.ErrSessionLost, elector.ErrServerReadOnly}, hooks.SessionLost, 4 * time.Second},
	{"wrong shape", badAnswer, nil, []error{elector.ErrSessionLost}, hooks.SessionLost, 4 * time.Second},
}

var (
	errTerminated = &pgconn.PgError{Severity: "FATAL", Code: "57P01", Message: "terminating connection due to administrator command"}
	errIdle       = &pq.Error{Severity: "FATAL", Code: "57P05", Message: "terminating connection due to idle-session timeout"}
)

func TestAFailedHeartbeatEndsTheTermAndTheNextCampaignBegins(t *testing.T) {
	for _, h := range heartbeatFaults {
		bubble(t, h.name, func(t *testing.T) {
			pool, mock := newMock(t)
			s := heartbeat
			if h.answer != nil {
				s.answer = nil
				for _, v := range h.answer {
					s.answer = append(s.answer, v)
				}
			}
			expectTerm(mock, 1)
			expectHeartbeat(mock)
			s.expect(mock, h.fault)
			if slices.Contains(h.want, elector.ErrSessionPooled) { // whose other backend keeps the lock
				query(mock, "EvictHolder").WithArgs(sessionPID, orders).WillReturnRows(row(true))
			}
			expectTerm(mock, 2) // the server is checked anew
			expectResign(mock)

			e, rec := newElector(t, pool)
			err := e.Run(patience(t), func(ctx context.Context, term *elector.Term) error {
				if term.Token() == 2 {
					return nil
				}
				<-ctx.Done()
				wantError(t, context.Cause(ctx), h.want...)
				if held := time.Since(term.ElectedAt()); held != h.at {
					t.Errorf("held for %v, want %v", held, h.at)
				}
				if e.IsLeader() || term.Valid() {
					t.Error("still leading")
				}
				return nil
			})
			wantError(t, err)
			wantFailures(t, rec, hooks.OpHeartbeat)
			wantError(t, rec.Failures()[0].Err, h.want...)
			wantDemoted(t, rec, h.reason, hooks.Resigned)
			wantError(t, rec.Demoted()[0].Err, h.want...)
			if n := pool.Stats().InUse; n != 1 { // the mock's own
				t.Errorf("%d connections are in use", n)
			}
		})
	}
}

func TestASlowHeartbeatInTimeCostsNothing(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		const stall = 4999 * time.Millisecond // sent 2 s after the last proof, valid for 7 s
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		heartbeat.expect(mock, fault{after: stall})
		expectHeartbeats(mock, 2) // at once, because the proof is old by then, and 2 s later
		expectResign(mock)
		e, rec := newElector(t, pool)
		term := campaign(t, e)
		time.Sleep(10 * time.Second)
		if !e.IsLeader() || !term.Valid() {
			t.Error("not leading any more")
		}
		resign(t, term)
		wantFailures(t, rec)
		wantDemoted(t, rec, hooks.Resigned)
		for _, b := range rec.Heartbeats() { // a deadline counts from when the heartbeat was sent
			if b.Took != stall && b.Took != 0 || b.Deadline.Sub(b.At) != 7*time.Second-b.Took {
				t.Errorf("reported %+v", b)
			}
		}
	})
}

func TestAfterALostTermCampaignChecksTheServerAnewToo(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		heartbeat.expect(mock, fault{err: errTerminated})
		e, rec := newElector(t, pool)
		term := campaign(t, e)
		<-term.Context().Done()
		wantError(t, term.Resign(t.Context()), elector.ErrNotLeader, elector.ErrSessionLost, errTerminated)
		expectTerm(mock, 2)
		expectResign(mock)
		resign(t, campaign(t, e))
		wantFailures(t, rec, hooks.OpHeartbeat)
	})
}
