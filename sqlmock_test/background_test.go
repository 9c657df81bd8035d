package sqlmock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

func TestStartLeadsUntilStop(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		e, rec := newElector(t, pool)
		wantError(t, e.Stop(t.Context())) // nothing to stop
		for round := range int64(3) {
			if round == 0 {
				expectServerCheck(mock)
			}
			expectElection(mock, round+1)
			expectHeartbeats(mock, 2)
			expectResign(mock)
			wantError(t, e.Start(patience(t)))
			time.Sleep(5 * time.Second)
			if term, leading := e.Term(); !leading || term.Token() != round+1 {
				t.Errorf("round %d: leading %v", round, leading)
			}
			wantError(t, e.Stop(t.Context()))
			if e.IsLeader() {
				t.Error("leading after Stop")
			}
			wantError(t, e.Stop(t.Context()))
			wantError(t, rec.Demoted()[round].Err, elector.ErrStopped)
		}
		wantDemoted(t, rec, hooks.Shutdown, hooks.Shutdown, hooks.Shutdown)
		wantFailures(t, rec)
	})
}

func TestAfterStopTheElectorServesEveryOtherUse(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectResign(mock)
		e, _ := newElector(t, pool)
		wantError(t, e.Start(patience(t)))
		settle()
		wantError(t, e.Stop(t.Context()))
		expectElection(mock, 2)
		expectResign(mock)
		resign(t, campaign(t, e))
		expectElection(mock, 3)
		expectResign(mock)
		wantError(t, e.Run(patience(t), func(context.Context, *elector.Term) error { return nil }))
		expectLeader(mock, 300, "web-2")
		leader, err := e.Leader(t.Context())
		if leader.PID != 300 || err != nil || e.IsLeader() {
			t.Errorf("got %+v, %v", leader, err)
		}
	})
}

func TestTheContextOfStartEndsItAsStopDoes(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectResign(mock)
		e, rec := newElector(t, pool)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantError(t, e.Start(ctx))
		time.Sleep(time.Second)
		wantDemoted(t, rec, hooks.Shutdown)
		wantError(t, rec.Demoted()[0].Err, context.DeadlineExceeded)
		wantError(t, e.Stop(t.Context()))
	})
}

func TestStopWaitsOnlyAsLongAsItsContext(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectTerm(mock, 1)
		expectHeartbeats(mock, 4)
		expectResign(mock)
		e, _ := newElector(t, pool, elector.WithHooks(hooks.Funcs{
			Demoted: func(context.Context, hooks.Demoted) { time.Sleep(9 * time.Second) },
		}))
		wantError(t, e.Start(patience(t)))
		settle()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantError(t, e.Stop(impatient), context.DeadlineExceeded)
		wantError(t, e.Start(patience(t)), elector.ErrAlreadyRunning) // it still stops
		wantError(t, e.Stop(t.Context()))
		for range 20 {
			wantError(t, e.Stop(impatient)) // nothing to wait for
		}
	})
}

func TestStopOfWhatHasEndedDoesNotDependOnItsContext(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 {
			pool, mock := newMock(t)
			refusals[0].server(mock)
			e, _ := newElector(t, pool)
			wantError(t, e.Start(patience(t)))
			settle()
			wantError(t, e.Stop(cancelled), elector.ErrServerReadOnly)
		}
	})
}

func TestOneElectorDoesOneThingAtATime(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		expectServerCheck(mock)
		expectBusy(mock, 300, "web-2")
		expectElection(mock, 1)
		expectResign(mock)
		e, _ := newElector(t, pool)
		ctx, stop := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer stop()
		ran := make(chan error)
		go func() { ran <- e.Run(ctx, nil) }()
		for _, while := range []string{"campaigning", "leading"} {
			settle()
			if while == "leading" {
				time.Sleep(1100 * time.Millisecond)
			}
			_, campaigned := e.Campaign(patience(t))
			_, elected, tried := e.TryCampaign(t.Context())
			for _, err := range []error{e.Run(patience(t), nil), e.Start(patience(t)), campaigned, tried} {
				wantError(t, err, elector.ErrAlreadyRunning)
			}
			if e.IsLeader() != (while == "leading") || elected {
				t.Errorf("%s: leading %v", while, e.IsLeader())
			}
			wantError(t, e.Stop(t.Context())) // is for Start only
		}
		wantError(t, <-ran, context.DeadlineExceeded)
	})
}

// An elector that has ended by itself says so to whoever stops it while the last hook
// still hears of it, and to one of them only.
func TestStopSaysWhyTheElectorHadEndedByItself(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		refusals[0].server(mock)
		e, _ := newElector(t, pool, elector.WithHooks(hooks.Funcs{
			Error: func(context.Context, hooks.Failure) { time.Sleep(time.Second) },
		}))
		wantError(t, e.Start(patience(t)))
		settle()
		stopped := make(chan error)
		for range 2 {
			go func() { stopped <- e.Stop(context.WithoutCancel(t.Context())) }()
		}
		first, second := <-stopped, <-stopped
		if first == nil {
			first, second = second, first
		}
		wantError(t, first, elector.ErrServerReadOnly)
		wantError(t, second)
	})
}

func TestStopReturnsTheErrorsOfEveryStartThatEndedByItself(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		e, _ := newElector(t, pool, elector.WithMaxAttempts(1))
		start := func() {
			wantError(t, e.Start(patience(t)))
			time.Sleep(time.Second)
			settle()
		}
		refusals[0].server(mock)
		start()
		query(mock, "DescribeServer").WillReturnError(errPlain)
		start()
		expectTerm(mock, 1)
		expectResign(mock)
		start()
		wantError(t, e.Stop(t.Context()), elector.ErrServerReadOnly, elector.ErrGaveUp)
		wantError(t, e.Stop(t.Context()))
	})
}

// An elector that is started again and again, and never stopped, must not grow.
func TestTheErrorsThatNobodyReadsAreBounded(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		pool, mock := newMock(t)
		e, _ := newElector(t, pool, elector.WithMaxAttempts(1))
		for i := range 100 {
			query(mock, "DescribeServer").WillReturnError(fmt.Errorf("failure %d.", i))
			wantError(t, e.Start(patience(t)))
			time.Sleep(time.Second)
			settle()
		}
		err := e.Stop(t.Context())
		for i := range 100 {
			if contains(err, fmt.Sprintf("failure %d.", i)) != (i >= 90) {
				t.Errorf("failure %d: %v", i, err)
			}
		}
	})
}
