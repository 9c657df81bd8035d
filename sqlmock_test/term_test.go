package sqlmock_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/inbox"
)

// The statements of a term.
var (
	heartbeat = statement{"Ping", values(sessionPID, false, false)}
	holdsLock = statement{"HoldsLock", values(true, sessionPID)}
	unlock    = statement{"Unlock", values(true)}
)

var (
	errTerminated = &pgconn.PgError{Severity: "FATAL", Code: "57P01", Message: "terminating connection due to administrator command"}
	errIdle       = &pq.Error{Severity: "FATAL", Code: "57P05", Message: "terminating connection due to idle-session timeout"}
)

// A heartbeatFault ends a session. It has the reason, and the time since the term began.
type heartbeatFault struct {
	name   string
	fault  fault
	answer []driver.Value // instead of the right one
	want   []error
	reason hooks.Reason
	at     time.Duration
}

func (h heartbeatFault) beat() statement {
	if h.answer != nil {
		return statement{"Ping", h.answer}
	}
	return heartbeat
}

var heartbeatFaults = []heartbeatFault{
	{"plain error", fault{err: errPlain}, nil, []error{elector.ErrSessionLost, errPlain}, hooks.SessionLost, 4 * time.Second},
	{"terminated, by pgx", fault{err: errTerminated}, nil, []error{elector.ErrSessionLost, errTerminated}, hooks.SessionLost, 4 * time.Second},
	{"terminated, by lib/pq", fault{err: errIdle}, nil, []error{elector.ErrSessionLost, errIdle}, hooks.SessionLost, 4 * time.Second},
	{"connection gone", anyError[4], nil, []error{elector.ErrSessionLost, anyError[4].err}, hooks.SessionLost, 4 * time.Second},
	{"late error", fault{err: errPlain, after: time.Second}, nil, []error{elector.ErrSessionLost, errPlain}, hooks.SessionLost, 5 * time.Second},
	{"no answer", noAnswer, nil, []error{elector.ErrLeaseExpired}, hooks.LeaseExpired, 9 * time.Second},
	{"another backend", fault{}, values(sessionPID+1, false, false), []error{elector.ErrSessionLost, elector.ErrSessionPooled}, hooks.SessionLost, 4 * time.Second},
	{"in recovery", fault{}, values(sessionPID, true, false), []error{elector.ErrSessionLost, elector.ErrServerReadOnly}, hooks.SessionLost, 4 * time.Second},
	{"wrong shape", badAnswer, nil, []error{elector.ErrSessionLost}, hooks.SessionLost, 4 * time.Second},
}

func TestAFailedHeartbeatEndsTheTermAndTheNextCampaignBegins(t *testing.T) {
	for _, h := range heartbeatFaults {
		bubble(t, h.name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			expectHeartbeat(mock)
			h.beat().expect(mock, h.fault)
			if slices.Contains(h.want, elector.ErrSessionPooled) { // another backend has the lock
				expectEviction(mock, sessionPID, orders)
			}
			if slices.Contains(h.want, error(errTerminated)) { // by an administrator, perhaps: is there a deputy?
				mock.ExpectBegin()
				inquiry(mock, "Deputies").WillReturnRows(rows())
				mock.ExpectRollback()
			}
			expectTerm(mock, 2) // the server is checked again
			expectResign(mock)
			e, rec := newElector(t, pool)
			var first *elector.Term
			wantError(t, e.Run(patience(t), func(ctx context.Context, term *elector.Term) error {
				if term.Token() == timelineOne|2 {
					return nil
				}
				<-ctx.Done()
				wantError(t, context.Cause(ctx), h.want...)
				if held := time.Since(term.ElectedAt()); held != h.at || e.IsLeader() || term.Valid() {
					t.Errorf("held for %v, want %v", held, h.at)
				}
				first = term
				return nil
			}))
			wantFailures(t, rec, hooks.OpHeartbeat)
			wantError(t, rec.Failures()[0].Err, h.want...)
			wantDemoted(t, rec, h.reason, hooks.Resigned)
			wantError(t, rec.Demoted()[0].Err, h.want...)
			wantError(t, first.Resign(t.Context()), slices.Concat(h.want, []error{elector.ErrNotLeader})...)
			wantInUse(t, pool, 1)
		})
	}
}

var refusals = map[string]error{
	"pgx":    &pgconn.PgError{Severity: "ERROR", Code: "57014", Message: "canceling statement due to user request"},
	"lib/pq": &pq.Error{Severity: "ERROR", Code: "57014", Message: "canceling statement due to user request"},
}

// It is tried again at once, and then each 250 ms. The session has its lock still.
func TestAHeartbeatWhoseStatementFailsIsTriedAgain(t *testing.T) {
	for driver, cancelled := range refusals {
		bubble(t, driver, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			for range 3 {
				heartbeat.expect(mock, fault{err: cancelled})
			}
			expectHeartbeat(mock)
			expectResign(mock)
			e, rec := newElector(t, pool)
			term := campaign(t, e)
			time.Sleep(3 * time.Second)
			if renewed := term.RenewedAt().Sub(term.ElectedAt()); renewed != 2500*time.Millisecond {
				t.Errorf("renewed after %v", renewed)
			}
			resign(t, term)
			wantFailures(t, rec)
		})
	}
}

func TestASlowHeartbeatInTimeCostsNothing(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		const stall = 4999 * time.Millisecond // sent 2 s after the last proof, valid for 7 s
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		heartbeat.expect(mock, fault{after: stall})
		expectHeartbeats(mock, 2) // at once, since the last proof is old, and 2 s later
		expectResign(mock)
		e, rec := newElector(t, pool)
		term := campaign(t, e)
		time.Sleep(10 * time.Second)
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

func TestTheContextIsCancelledAtSentPlusLeaseMinusMarginMinusDrain(t *testing.T) {
	for name, c := range map[string]struct {
		opts  []elector.Option
		beats int
		ends  time.Duration // after the last answered heartbeat was sent
	}{
		"defaults":        {nil, 1, 7 * time.Second},
		"lease":           {[]elector.Option{elector.WithLease(time.Minute)}, 1, 42 * time.Second},
		"least lease":     {[]elector.Option{elector.WithLease(time.Second)}, 3, 700 * time.Millisecond},
		"no drain":        {[]elector.Option{elector.WithDrain(0)}, 2, 9 * time.Second},
		"longer drain":    {[]elector.Option{elector.WithDrain(5 * time.Second)}, 2, 4 * time.Second},
		"fast heartbeats": {[]elector.Option{elector.WithHeartbeatInterval(100 * time.Millisecond)}, 50, 7 * time.Second},
	} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			expectHeartbeats(mock, c.beats)
			heartbeat.expect(mock, noAnswer)
			e, rec := newElector(t, pool, c.opts...)
			term := campaign(t, e)
			<-term.Context().Done()
			if got := time.Since(term.RenewedAt()); got != c.ends {
				t.Errorf("cancelled %v after the last proof, want %v", got, c.ends)
			}
			wantError(t, context.Cause(term.Context()), elector.ErrLeaseExpired)
			if !time.Now().Equal(term.Deadline()) || len(rec.Heartbeats()) != c.beats {
				t.Errorf("deadline %v, %d heartbeats", term.Deadline(), len(rec.Heartbeats()))
			}
			wantDemoted(t, rec, hooks.LeaseExpired)
		})
	}
}

func TestTheValidityBeginsWhenTheTokenIsRequested(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectAttemptUpTo(mock, len(attempt)-1, fault{after: time.Second})
		expectResign(mock)
		e, rec := newElector(t, pool)
		term := campaign(t, e)
		if left := time.Until(term.Deadline()); left != 6*time.Second || time.Since(term.RenewedAt()) != time.Second || !term.ElectedAt().Equal(time.Now()) {
			t.Errorf("%v are left; requested at %v, elected at %v", left, term.RenewedAt(), term.ElectedAt())
		}
		settle()
		if got := rec.Elected()[0]; !got.Deadline.Equal(term.Deadline()) || !got.At.Equal(term.ElectedAt()) || got.Campaigned != time.Second {
			t.Errorf("reported %+v", got)
		}
		resign(t, term)
	})
}

// The interval and the validity count from when a statement is sent.
func TestAHeartbeatIsSentEachIntervalAfterTheLastProof(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		for range 5 {
			heartbeat.expect(mock, fault{after: 500 * time.Millisecond})
		}
		expectResign(mock)
		e, rec := newElector(t, pool)
		term := campaign(t, e)
		time.Sleep(11 * time.Second)
		resign(t, term)
		if n := len(rec.Heartbeats()); n != 5 {
			t.Errorf("%d heartbeats", n)
		}
		for i, b := range rec.Heartbeats() {
			sent := term.ElectedAt().Add(time.Duration(i+1) * 2 * time.Second)
			if !b.At.Equal(sent.Add(500*time.Millisecond)) || !b.Deadline.Equal(sent.Add(7*time.Second)) || b.Token != timelineOne|1 {
				t.Errorf("heartbeat %d: %+v", i, b)
			}
		}
	})
}

func TestVerifyAsksTheServerAndRenewsTheTerm(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		holdsLock.expect(mock, fault{after: 500 * time.Millisecond})
		heartbeat.expect(mock, noAnswer) // 2 s after Verify
		e, _ := newElector(t, pool)
		term := campaign(t, e)
		time.Sleep(time.Second)
		sent := time.Now()
		wantError(t, term.Verify(t.Context()))
		if !term.RenewedAt().Equal(sent) || !term.Deadline().Equal(sent.Add(7*time.Second)) {
			t.Errorf("sent %v, renewed at %v, until %v", sent, term.RenewedAt(), term.Deadline())
		}
		<-term.Context().Done()
		if got := time.Since(sent); got != 7*time.Second {
			t.Errorf("the term ended %v after it was verified", got)
		}
	})
}

func TestVerifyEndsATermWhoseLockIsGone(t *testing.T) {
	all := append([]fault{badAnswer, {name: "not held"}, {name: "another backend"}}, anyFault...)
	for _, f := range all {
		bubble(t, f.name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			switch f.name {
			case "not held":
				query(mock, "HoldsLock").WillReturnRows(row(false, sessionPID))
			case "another backend":
				query(mock, "HoldsLock").WillReturnRows(row(true, sessionPID+1))
				expectEviction(mock, sessionPID, orders)
			default:
				holdsLock.expect(mock, f)
			}
			e, rec := newElector(t, pool)
			term := campaign(t, e)
			settle() // OnElected is called
			err := term.Verify(t.Context())
			wantError(t, err, elector.ErrNotLeader)
			if f.want != nil {
				wantError(t, err, f.want)
			}
			if f.name == "not held" && !contains(err, "does not hold the lock") {
				t.Errorf("got %v", err)
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

// The server spends 5 ms, so the next validation comes after 10 s: they take 1/2000 of its time at most. How long the
// client waits says nothing of that. Of the last three the least counts.
func TestValidationsArePutOffByTheTimeThatTheServerSpends(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		spent := func(micros int64) {
			query(mock, "ValidateLocks").WillDelayFor(40 * time.Millisecond).WillReturnRows(row(orders, micros))
		}
		spent(5000)
		expectHeartbeats(mock, 5)
		spent(300)
		expectHeartbeat(mock)
		spent(60e6) // the server was busy, or its clock was set
		e, rec := newElector(t, pool, elector.WithValidateInterval(1100*time.Millisecond))
		if got := e.Settings().ValidateInterval; got != 1100*time.Millisecond {
			t.Errorf("at first the interval is %v", got)
		}
		term := campaign(t, e)
		time.Sleep(2500 * time.Millisecond)
		if got := e.Settings().ValidateInterval; got != 10*time.Second {
			t.Errorf("in force is %v", got)
		}
		time.Sleep(10 * time.Second)
		if got := e.Settings().ValidateInterval; got != 1100*time.Millisecond {
			t.Errorf("then %v is in force", got)
		}
		expectResign(mock)
		resign(t, term)
		wantFailures(t, rec)
	})
}

// However long the server takes, a validation comes with each tenth heartbeat.
func TestAValidationEndsATermWhoseLockIsGone(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		query(mock, "ValidateLocks").WillDelayFor(100 * time.Millisecond).WillReturnRows(row(orders, int64(1e5)))
		expectHeartbeats(mock, 10)
		query(mock, "ValidateLocks").WillReturnRows(rows())
		query(mock, "HoldsLock").WillReturnRows(row(false, sessionPID))
		e, rec := newElector(t, pool, elector.WithValidateInterval(time.Second))
		term := campaign(t, e)
		<-term.Context().Done()
		if held := time.Since(term.ElectedAt()); held != 20*time.Second {
			t.Errorf("the term ended after %v", held)
		}
		wantError(t, context.Cause(term.Context()), elector.ErrSessionLost)
		wantFailures(t, rec, hooks.OpHeartbeat)
		wantDemoted(t, rec, hooks.SessionLost)
	})
}

// Its statement_timeout ends it, say, beside very many locks of others, or somebody does. The session has its
// locks still.
func TestAQuestionThatTheServerCancelsEndsNoTerm(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		e, rec := newElector(t, pool)
		term := campaign(t, e)
		query(mock, "HoldsLock").WillReturnError(errCancelled)
		if err := term.Verify(t.Context()); !errors.Is(err, errCancelled) || errors.Is(err, elector.ErrNotLeader) {
			t.Errorf("got %v", err)
		}
		query(mock, "HoldsLock").WillReturnRows(row(true, sessionPID))
		wantError(t, term.Verify(t.Context()))
		expectResign(mock)
		resign(t, term)
		wantFailures(t, rec)
	})
}

// Others choose how many locks the question for requests reads. The server bounds it, too, by one lease.
func TestAQuestionBesideTheSessionThatTheServerCancelsEndsNoTerm(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		e, rec := newElector(t, pool)
		expectTerm(mock, 1)
		query(mock, "Ping").WillReturnRows(row(sessionPID, false, true)) // somebody rings
		query(mock, "ServerStart").WillReturnRows(row("1767225600"))
		mock.ExpectBegin()
		bound := fmt.Sprintf(`[{"name":"statement_timeout","value":"%d"}]`, e.Settings().Lease.Milliseconds())
		query(mock, "ApplySettings").WithArgs(true, bound).WillReturnRows(row(1))
		query(mock, "Requests").WillReturnError(errCancelled)
		mock.ExpectRollback()
		expectResign(mock)
		term := campaign(t, e)
		time.Sleep(3 * time.Second)
		wantError(t, context.Cause(term.Context()))
		resign(t, term)
		wantFailures(t, rec) // the second in a row is reported
		wantDemoted(t, rec, hooks.Resigned)
	})
}

// After a shutdown a term holds its lock until lead has returned. A Verify under way must not end its
// session, and a later one sends nothing.
func TestAVerifyUnderWayAtAShutdownLeavesTheLockToLead(t *testing.T) {
	for name, choose := range map[string]func(own, term context.Context) context.Context{
		"with the term's context": func(_, term context.Context) context.Context { return term },
		"with its own":            func(own, _ context.Context) context.Context { return own },
	} {
		bubble(t, name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			holdsLock.expect(mock, fault{after: time.Second})
			expectHeartbeats(mock, 2) // while lead winds down
			expectResign(mock)
			e, rec := newElector(t, pool)
			ctx := within(t, 500*time.Millisecond)
			wantError(t, e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
				for range 2 {
					wantError(t, term.Verify(choose(t.Context(), ctx)), elector.ErrNotLeader, context.DeadlineExceeded)
				}
				time.Sleep(4 * time.Second)
				return nil
			}), context.DeadlineExceeded)
			wantFailures(t, rec, hooks.OpWork)
			wantDemoted(t, rec, hooks.Shutdown)
		})
	}
}

// The server answers that the lock is gone, and the context ends at that moment.
func TestAVerifyWhoseContextEndsWithTheAnswerReturnsTheAnswer(t *testing.T) {
	for i := range 51 {
		bubble(t, "", func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			query(mock, "HoldsLock").WillDelayFor(time.Second).WillReturnRows(row(false, sessionPID))
			e, _ := newElector(t, pool)
			term := campaign(t, e)
			ctx := within(t, time.Second)
			if i == 0 {
				ctx = endsSilently{t.Context(), time.Now().Add(500 * time.Millisecond)}
			}
			if err := term.Verify(ctx); err == nil {
				t.Error("verified")
			}
			leave(t, mock, term)
		})
	}
}

// endsSilently ends at a moment, and wakes nobody.
type endsSilently struct {
	context.Context
	at time.Time
}

func (c endsSilently) Err() error {
	if time.Now().After(c.at) {
		return context.Canceled
	}
	return nil
}

func TestResignReturnsNilOnlyIfTheLockIsKnownToBeFree(t *testing.T) {
	late := fault{name: "slow", after: 3 * time.Second}
	for _, f := range append([]fault{late, badAnswer, {name: "not released"}, {name: "moved", want: elector.ErrSessionPooled}, {name: "moved back", want: elector.ErrSessionPooled}}, anyFault...) {
		bubble(t, f.name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			switch f.name {
			case "not released":
				query(mock, "Unlock").WillReturnRows(row(false))
				query(mock, "HoldsLock").WillReturnRows(row(false, sessionPID))
			case "moved": // by a pooler
				query(mock, "Unlock").WillReturnRows(row(false))
				query(mock, "HoldsLock").WithArgs(sessionPID, orders).WillReturnRows(row(false, sessionPID+1))
				expectEviction(mock, sessionPID, orders)
			case "moved back":
				query(mock, "Unlock").WillReturnRows(row(false))
				query(mock, "HoldsLock").WillReturnRows(row(true, sessionPID))
				expectEviction(mock, sessionPID, orders)
			default:
				unlock.expect(mock, f)
			}
			e, rec := newElector(t, pool, elector.WithHeartbeatInterval(3500*time.Millisecond))
			term := campaign(t, e)
			err := term.Resign(t.Context())
			if again := term.Resign(t.Context()); again != err {
				t.Errorf("the second Resign: %v", again)
			}
			wantInUse(t, pool, 1) // the session is discarded in any case
			wantDemoted(t, rec, hooks.Resigned)
			if f.name == late.name {
				wantError(t, err)
				wantFailures(t, rec)
				return
			}
			if wantError(t, err, elector.ErrSessionLost); f.want != nil {
				wantError(t, err, f.want)
			}
			wantFailures(t, rec, hooks.OpRelease)
			wantError(t, rec.Failures()[0].Err, err)
		})
	}
}

// It is reported, but Run does not return it.
func TestAFailedUnlockIsToldAfterTheDemotion(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		unlock.expect(mock, anyError[1])
		e, rec := newElector(t, pool)
		wantError(t, e.Run(patience(t), func(context.Context, *elector.Term) error { return nil }))
		events := slices.DeleteFunc(rec.Events(), func(e any) bool { // LeaderChanged may come earlier
			_, changed := e.(hooks.LeaderChanged)
			return changed
		})
		_, demoted := events[len(events)-2].(hooks.Demoted)
		failure, _ := events[len(events)-1].(hooks.Failure)
		if wantError(t, failure.Err, errPgx); !demoted || failure.Op != hooks.OpRelease {
			t.Errorf("events: %+v", events)
		}
	})
}

var (
	since   = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	holder  = statement{"Holder", values(200, "web-2", "app", "10.0.0.2", since.UnixMicro(), 10_000, since.UnixMicro(), false, 0, "", "", 0, 0)}
	waiters = statement{"Deputies", values(201, "web-3", "app", "", 0, true, since.UnixMicro())}
)

// expectLeader expects a query for the leader; "" means nobody.
func expectLeader(mock sqlmock.Sqlmock, pid int, id string) {
	rows := sqlmock.NewRows(make([]string, 13))
	mock.ExpectBegin()
	inquiry(mock, "Holder").WillReturnRows(rows)
	if id != "" {
		rows.AddRow(pid, id, "app", "", 0, 0, 0, false, 0, "", "", 0, 0)
	}
	mock.ExpectRollback()
}

func TestAFaultOfLeaderAndCandidatesIsReturned(t *testing.T) {
	for _, f := range append([]fault{badAnswer}, anyError...) {
		for _, s := range []statement{holder, waiters} {
			bubble(t, s.name+"/"+f.name, func(t *testing.T) {
				pool, mock := newMock(t)
				e, _ := newElector(t, pool)
				if s.name == "Deputies" {
					expectLeader(mock, 0, "")
				}
				mock.ExpectBegin()
				query(mock, "ApplySettings").WillReturnRows(row(1))
				s.expect(mock, f)
				mock.ExpectRollback()
				all, err := e.Candidates(t.Context())
				if err == nil || all != nil {
					t.Errorf("got %v, %v", all, err)
				}
				if f.want != nil {
					wantError(t, err, f.want)
				}
			})
		}
	}
}

// Transactions are numbered anew when the server has crashed, so a request may have the name of one
// that an earlier session has answered. Requests with the key 0 are for the end of a transaction.
func TestEachSessionAnswersARequestOfTheSameName(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		e, rec := newElector(t, pool)
		expectCheck(mock, turns)
		for token := range int64(3) {
			expectElection(mock, token+1)
			for _, key := range []int64{0, inbox.ResignKey(e.Key())} {
				query(mock, "Ping").WillReturnRows(row(sessionPID, false, true))
				if key == 0 { // which server it is, is asked once
					query(mock, "ServerStart").WillReturnRows(row("1767225600"))
				}
				mock.ExpectBegin()
				inquiry(mock, "Requests").WillReturnRows(row("3/7", key, 77, "", "admin", ""))
				mock.ExpectRollback()
			}
			expectResign(mock)
			term := campaign(t, e)
			time.Sleep(3 * time.Second)
			wantError(t, context.Cause(term.Context()))
			time.Sleep(2 * time.Second)
			wantError(t, context.Cause(term.Context()), elector.ErrResigned)
			resign(t, term)
		}
		wantDemoted(t, rec, hooks.Requested, hooks.Requested, hooks.Requested)
	})
}

// The other backend does not know the statement, or has another of that name. The lock is on the old one.
func TestALockIsFreedIfAPreparedStatementShowsThatAPoolerHasMovedItsSession(t *testing.T) {
	for _, state := range []string{"26000", "42P05"} {
		missing := fault{err: &pgconn.PgError{Code: state}}
		bubble(t, "resigned "+state, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			mock.ExpectPrepare("-- name: Unlock ")
			unlock.expect(mock, missing)
			unlock.expect(mock, missing) // asked again
			expectEviction(mock, sessionPID, orders)
			e, _ := newElector(t, pool, elector.WithTakeover(elector.Wait))
			term := campaign(t, e)
			time.Sleep(time.Second)
			wantError(t, term.Resign(t.Context()), elector.ErrSessionLost, elector.ErrSessionPooled)
		})
		for name, asked := range map[string]struct {
			statement
			ask func(*testing.T, *elector.Term)
		}{
			"heartbeat": {heartbeat, func(_ *testing.T, term *elector.Term) { <-term.Context().Done() }},
			"verified": {holdsLock, func(t *testing.T, term *elector.Term) {
				wantError(t, term.Verify(t.Context()), elector.ErrNotLeader, elector.ErrSessionPooled)
			}},
		} {
			bubble(t, name+" "+state, func(t *testing.T) {
				pool, mock := newMock(t)
				expectTerm(mock, 1)
				asked.expect(mock, missing)
				asked.expect(mock, missing)
				expectEviction(mock, sessionPID, orders)
				e, _ := newElector(t, pool)
				term := campaign(t, e)
				asked.ask(t, term)
				wantError(t, context.Cause(term.Context()), elector.ErrSessionLost, elector.ErrSessionPooled)
				_ = term.Resign(t.Context())
			})
		}
	}
}
