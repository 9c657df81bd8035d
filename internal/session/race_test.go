package session_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/pair"
	"github.com/pgelector/pgelector/internal/queue"
	"github.com/pgelector/pgelector/internal/session"
	"github.com/pgelector/pgelector/internal/transaction"
)

// The contract of Session lists these. The race detector checks them.
func TestAnyGoroutineMayUseASessionThatIsStarted(t *testing.T) {
	for name, scope := range map[string]session.Scope{"session scope": session.SessionScope, "transaction scope": session.TransactionScope} {
		t.Run(name, func(t *testing.T) {
			pool := electortest.NewServer().Open()
			defer pool.Close()
			from := session.NewSource(pool, session.Config{Name: "web-1", Scope: scope, Inside: transaction.Part{}, OnBeat: func(session.Beat) {},
				Lease: lease.Lease{Length: time.Minute, Heartbeat: 5 * time.Millisecond, Drain: time.Second}, Report: func(context.Context, session.Task, error) {}})
			s, err := queue.Open(t.Context(), from, queue.Holder, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			from.Start(s)
			ctx := t.Context()
			uses := []func(){
				func() { _, _ = session.Do(ctx, s.Trial(), (*db.Queries).Identify) },
				func() { _, _ = session.Do(ctx, s, (*db.Queries).InTransaction) },
				func() { _, _ = session.Do(ctx, s.Simple(), (*db.Queries).InTransaction) },
				func() { _, _ = session.Do(ctx, s.Aux(), (*db.Queries).InTransaction) },
				func() { _, _ = session.Do(ctx, s.AuxThenVerify(), (*db.Queries).InTransaction) },
				func() { _ = s.Stay(ctx) },
				func() { _, _ = s.ServerStart(ctx) },
				func() { _, _ = pair.Try(s, 1<<40) },
				func() { _, _ = pair.IsFree(ctx, s, 2<<40) },
				func() { _, _ = s.Valid(), s.EndIfExpired() },
				func() { _, _ = s.Owner(), s.Timeout() },
				func() { _, _, _ = s.PID(), s.Backend.Number, s.InTransaction() },
				func() { _, _, _ = s.Context(), s.TermContext(), s.IsStarted() },
				func() { s.Hold()() },
				func() { s.Go(func() {}) },
				s.HeartbeatNow,
			}
			var all sync.WaitGroup
			for _, use := range uses {
				for range 4 {
					all.Go(func() {
						for range 25 {
							use()
						}
					})
				}
			}
			all.Wait()
			if err := s.EndIfExpired(); err != nil {
				t.Errorf("it has ended: %v", err)
			}
			for range 4 {
				all.Go(s.Close)
			}
			all.Wait()
		})
	}
}
