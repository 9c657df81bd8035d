package sqlmock_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// manualNotifier is a notifier that a test controls.
type manualNotifier struct {
	mu  sync.Mutex
	all map[int]func(string)
	n   int
}

func (b *manualNotifier) Subscribe(wake func(string)) func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[int]func(string){}
	}
	b.n++
	n := b.n
	b.all[n] = wake
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.all, n)
	}
}

func (b *manualNotifier) notify(payload string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, wake := range b.all {
		wake(payload)
	}
}

func (b *manualNotifier) subscribers() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.all)
}

// orders is the election of newElector.
var orders = elector.KeyFromName("orders")

func free(key int64) string { return fmt.Sprint("free ", key) }

// expectNotify expects a notification, on another connection.
func expectNotify(mock sqlmock.Sqlmock, payload string) {
	expectBeginToTell(mock)
	query(mock, "Notify").WithArgs(elector.NotifyChannel, fmt.Sprintf("[%q]", payload)).WillReturnRows(row(true))
	mock.ExpectCommit()
}

// expectNotifyingResign expects an unlock, and that it notifies the others.
func expectNotifyingResign(mock sqlmock.Sqlmock) {
	query(mock, "Unlock").WithArgs(orders).WillReturnRows(row(true))
	expectNotify(mock, free(orders))
}

func TestANotificationThatMattersCausesAnAttemptAtOnce(t *testing.T) {
	for payload, matters := range map[string]bool{
		free(orders):               true,
		"":                         true, // some may have been missed
		fmt.Sprint("led ", orders): true, // to a candidate with a LeaderChanged hook
		fmt.Sprint("successor ", orders, " web-1"): true,
		fmt.Sprint("successor ", orders, " web-2"): false,
		fmt.Sprint("successor ", orders):           false,
		free(orders + 1):                           false,
		"free":                                     false,
		"free 0x":                                  false,
		fmt.Sprint("fire ", orders):                false,
		"oops":                                     false,
	} {
		bubble(t, payload, func(t *testing.T) {
			pool, mock := newMock(t)
			var notifier manualNotifier
			expectServerCheck(mock)
			expectBusy(mock, 300, "web-2")
			expectElection(mock, 1)
			expectNotify(mock, fmt.Sprint("led ", orders))
			expectNotifyingResign(mock)
			e, _ := newElector(t, pool, elector.WithNotifier(&notifier), elector.WithRetryInterval(time.Hour))
			start := time.Now()
			time.AfterFunc(time.Minute, func() { notifier.notify(payload) })
			term := campaign(t, e)
			if woken := time.Since(start) == time.Minute; woken != matters {
				t.Errorf("elected after %v", time.Since(start))
			}
			if n := notifier.subscribers(); n != 1 {
				t.Errorf("%d are subscribed while one leads, want 1, for requests", n)
			}
			settle()
			resign(t, term)
			settle()
			if n := notifier.subscribers(); n != 0 {
				t.Errorf("%d are subscribed after the term", n)
			}
		})
	}
}

func TestAStormOfNotificationsCostsFourAttemptsInARetryInterval(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		var notifier manualNotifier
		expectServerCheck(mock)
		for range 1 + 4 + 1 + 4 { // the mock reports any other
			expectBusy(mock, 300, "web-2")
		}
		e, rec := newElector(t, pool, elector.WithNotifier(&notifier), elector.WithRetryInterval(time.Minute))
		ctx := within(t, 74*time.Second) // the first pause is 7.5 s to 60 s long, the next 45 s at least
		over := make(chan struct{})
		go func() {
			defer close(over)
			for ctx.Err() == nil {
				notifier.notify(free(orders))
				time.Sleep(time.Millisecond)
			}
		}()
		_, err := e.Campaign(ctx)
		wantError(t, err, context.DeadlineExceeded)
		wantFailures(t, rec)
		<-over
	})
}

func TestANotificationWakesOnlyItsElectionOfASession(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 0)
		var notifier manualNotifier
		var all []*elector.Elector
		for key := range int64(2) {
			e, err := m.Elector("election", elector.WithKey(key+1), elector.WithNotifier(&notifier))
			wantError(t, err)
			all = append(all, e)
		}
		m.opened()
		query(m.mock, "TryLocks").WillReturnRows(rows(values(int64(1), "busy", sessionPID), values(int64(2), "busy", sessionPID)))
		query(m.mock, "TryLocks").WithArgs(lacks(`"key":1,`)).WillReturnRows(rows(values(int64(2), "granted", sessionPID)))
		expectAll(m.mock, grants(2, 7)[1:])
		expectNotify(m.mock, "led 2")
		query(m.mock, "Unlock").WithArgs(2).WillReturnRows(row(true))
		expectNotify(m.mock, "free 2")
		ctx, stop := context.WithCancel(t.Context())
		other := make(chan error, 1)
		go func() { _, err := all[0].Campaign(ctx); other <- err }()
		time.AfterFunc(100*time.Millisecond, func() { notifier.notify("free 2") })
		start := time.Now()
		term := campaign(t, all[1])
		if took := time.Since(start); took > 150*time.Millisecond {
			t.Errorf("elected after %v", took)
		}
		settle()
		resign(t, term)
		stop()
		wantError(t, <-other, context.Canceled)
	})
}

// If the lock may not be free, nobody is told that it is.
func TestAFailedReleaseIsNotNotified(t *testing.T) {
	for _, f := range anyError {
		bubble(t, f.name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			expectNotify(mock, fmt.Sprint("led ", orders))
			statement{"Unlock", values(true)}.expect(mock, f)
			e, rec := newElector(t, pool, elector.WithNotifier(&manualNotifier{}))
			term := campaign(t, e)
			settle()
			wantError(t, term.Resign(t.Context()), elector.ErrSessionLost, f.want)
			wantFailures(t, rec, hooks.OpRelease)
			wantInUse(t, pool, 1)
		})
	}
}

// A failed notification is a lost one. The term goes on, and the lock is released.
func TestANotificationMayFail(t *testing.T) {
	for _, f := range anyError {
		bubble(t, f.name, func(t *testing.T) {
			pool, mock := newMock(t)
			expectTerm(mock, 1)
			for _, payload := range []string{"led ", "free "} {
				if payload == "free " {
					query(mock, "Unlock").WithArgs(orders).WillReturnRows(row(true))
				}
				expectBeginToTell(mock)
				statement{"Notify", values(true)}.expect(mock, f)
				mock.ExpectRollback()
				if payload == "led " && f.err == driver.ErrBadConn { // is the session gone, too?
					expectHeartbeat(mock)
				}
			}
			e, rec := newElector(t, pool, elector.WithNotifier(&manualNotifier{}))
			term := campaign(t, e)
			settle()
			time.Sleep(f.after)
			settle()
			resign(t, term)
			time.Sleep(f.after)
			wantFailures(t, rec)
		})
	}
}

// A server that does not answer a NOTIFY costs the term nothing, and a resignation one second.
func TestANotificationMayHang(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectBeginToTell(mock)
		statement{"Notify", values(true)}.expect(mock, fault{after: 8 * time.Second})
		expectHeartbeat(mock)
		expectHeartbeat(mock)
		query(mock, "Unlock").WithArgs(orders).WillReturnRows(row(true))
		mock.ExpectCommit()
		expectNotify(mock, free(orders)) // once the first is sent
		e, rec := newElector(t, pool, elector.WithNotifier(&manualNotifier{}))
		term := campaign(t, e)
		time.Sleep(5 * time.Second)
		start := time.Now()
		resign(t, term)
		wantTook(t, start, time.Second)
		wantFailures(t, rec)
		time.Sleep(3 * time.Second)
	})
}

// A notification during an attempt causes another attempt at once.
func TestANotificationDuringABatchIsNotLost(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 0)
		var notifier manualNotifier
		e, err := m.Elector("election", elector.WithKey(1), elector.WithNotifier(&notifier))
		wantError(t, err)
		m.opened()
		query(m.mock, "TryLocks").WillDelayFor(200 * time.Millisecond).WillReturnRows(rows(values(int64(1), "busy", sessionPID)))
		m.elected(7, 1)
		expectNotify(m.mock, "led 1")
		query(m.mock, "Unlock").WillReturnRows(row(true))
		expectNotify(m.mock, "free 1")
		time.AfterFunc(100*time.Millisecond, func() { notifier.notify("free 1") })
		start := time.Now()
		term := campaign(t, e)
		if took := time.Since(start); took > 300*time.Millisecond {
			t.Errorf("elected after %v", took)
		}
		settle()
		resign(t, term)
	})
}

// The same limit applies as for a polling candidate.
func TestADeputyTriesWhenANotificationReportsThatTheLockIsFree(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		var notifier manualNotifier
		expectServerCheck(mock)
		expectAll(mock, deputies["asks"].sit)
		for range 4 {
			query(mock, "TryAsDeputy").WillReturnRows(row(false, sessionPID))
		}
		lookAbout.expect(mock, fault{})
		query(mock, "TryAsDeputy").WillReturnRows(row(true, sessionPID))
		granted.expect(mock, fault{})
		expectNotify(mock, fmt.Sprint("led ", orders))
		expectNotifyingResign(mock)
		e, _ := newElector(t, pool, elector.WithNotifier(&notifier), elector.WithTakeover(elector.Deputy), elector.WithDeputyInterval(2*time.Second))
		time.AfterFunc(500*time.Millisecond, func() {
			for range 100 {
				notifier.notify(free(orders))
				time.Sleep(time.Millisecond)
			}
		})
		start := time.Now()
		term := campaign(t, e)
		wantTook(t, start, 2*time.Second) // at the interval's end, after four for notifications
		settle()
		resign(t, term)
	})
}

// There is one in each of its intervals.
func TestADeputyHearsOfMoreThanFourNotificationsInACampaign(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		var notifier manualNotifier
		expectServerCheck(mock)
		expectAll(mock, deputies["asks"].sit)
		const heard = 6
		for i := range heard {
			query(mock, "TryAsDeputy").WillReturnRows(row(false, sessionPID))
			lookAbout.expect(mock, fault{})
			query(mock, "TryAsDeputy").WillReturnRows(row(false, sessionPID))
			query(mock, "PairIsFree").WillReturnRows(row(true, sessionPID))
			holder.expect(mock, fault{})
			if i == 0 {
				lookAbout.expect(mock, fault{}) // on its own session, to compare
			}
		}
		query(mock, "TryAsDeputy").WillReturnRows(row(true, sessionPID))
		granted.expect(mock, fault{})
		expectNotify(mock, fmt.Sprint("led ", orders))
		expectNotifyingResign(mock)
		e, _ := newElector(t, pool, elector.WithNotifier(&notifier), elector.WithTakeover(elector.Deputy), elector.WithDeputyInterval(2*time.Second))
		start := time.Now()
		for i := range time.Duration(heard + 1) {
			time.AfterFunc(500*time.Millisecond+i*2*time.Second, func() { notifier.notify(free(orders)) })
		}
		term := campaign(t, e)
		wantTook(t, start, heard*2*time.Second+500*time.Millisecond)
		settle()
		resign(t, term)
	})
}

// Further notifications wait for the next regular attempt.
func TestAStormOfNotificationsCostsASessionFourBatchesInARetryInterval(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		m := newMany(t, 0, elector.WithRetryInterval(time.Minute), elector.WithLease(10*time.Minute), elector.WithHeartbeatInterval(3*time.Minute))
		var notifier manualNotifier
		e, err := m.Elector("orders", elector.WithNotifier(&notifier))
		wantError(t, err)
		m.opened()
		for range 1 + 4 + 1 + 4 { // the mock reports any other
			query(m.mock, "TryLocks").WillReturnRows(rows(values(orders, "busy", sessionPID)))
		}
		ctx := within(t, 89*time.Second) // a regular batch follows after 45 to 60 s

		for _, storm := range []time.Duration{time.Second, 61 * time.Second} { // the last notification of each waits
			time.AfterFunc(storm, func() {
				for range 100 {
					notifier.notify(free(orders))
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		_, err = e.Campaign(ctx)
		wantError(t, err, context.DeadlineExceeded)
	})
}

// Told before, it would look, find nothing, and hear the request at its next heartbeat.
func TestALeaderIsToldOfARequestOnceItsBellHasRung(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectLeader(mock, 300, "web-2")
		mock.ExpectBegin()
		query(mock, "ApplySettings").WillReturnRows(row(1))
		query(mock, "WhoAnswers").WillReturnRows(row(500, false))
		holds := func(pid int, id string) { // on the connection of the request
			query(mock, "Holder").WillReturnRows(row(pid, id, "app", "", 0, 0, 0, false, 0, "", "", 0, 0))
		}
		for i, rung := range []bool{false, true, true} { // at first the leader was looking
			query(mock, "Ring").WillReturnRows(row(rung, 500, "3/7", false))
			if i == 1 {
				expectNotify(mock, fmt.Sprint("request ", orders))
			}
			if i < 2 {
				holds(300, "web-2")
			}
		}
		holds(400, "web-3")
		mock.ExpectRollback()
		expectLeader(mock, 400, "web-3")
		_, err := elector.RequestResign(patience(t), pool, "orders")
		wantError(t, err)
	})
}

// expectBeginToTell expects a transaction that is to be committed.
func expectBeginToTell(mock sqlmock.Sqlmock) {
	mock.ExpectBegin()
	mock.ExpectExec("-- name: RollBackAndChain ").WillReturnResult(sqlmock.NewResult(0, 0))
}

// A notification for a successor does not wake Observe. Without one it would take a retry interval.
func TestObserveIsWokenByChangesOfTheLeader(t *testing.T) {
	for word, matters := range map[string]bool{"free": true, "led": true, "successor": false, "soon": false} {
		bubble(t, word, func(t *testing.T) {
			pool, mock := newMock(t)
			var notifier manualNotifier
			expectLeader(mock, 0, "")
			if matters {
				expectLeader(mock, 300, "web-2")
			}
			e, _ := newElector(t, pool, elector.WithNotifier(&notifier), elector.WithRetryInterval(time.Hour))
			ctx := within(t, time.Minute)
			start, seen := time.Now(), time.Duration(0)
			time.AfterFunc(time.Second, func() { notifier.notify(fmt.Sprint(word, " ", orders, " web-1")) })
			for leader := range e.Observe(ctx) {
				if leader.CandidateID == "web-2" {
					seen = time.Since(start)
				}
			}
			if matters != (seen == time.Second) {
				t.Errorf("seen after %v", seen)
			}
			if n := notifier.subscribers(); n != 0 {
				t.Errorf("%d are still subscribed", n)
			}
		})
	}
}
