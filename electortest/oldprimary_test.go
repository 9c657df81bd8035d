package electortest_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// A standby is promoted while its primary still answers, as when a failover manager is cut
// off. A leader on the old primary notices when its pool reaches the new one, and must not be
// elected on the old one again.
func TestATermOnAnOldPrimaryEndsWhenThePoolReachesTheNewOne(t *testing.T) {
	for name, meets := range map[string]func(b *bench, s *candidate, term *elector.Term){
		"InTx": func(b *bench, s *candidate, term *elector.Term) {
			err := term.InTx(b.Context(), s.pool, nil, func(*sql.Tx) error { return nil })
			b.wraps(err, elector.ErrRolledBack, elector.ErrNotLeader, elector.ErrOldPrimary)
		},
		"InTx on another pool": func(b *bench, s *candidate, term *elector.Term) {
			other := s.process.Open()
			defer other.Close()
			err := term.InTx(b.Context(), other, nil, func(*sql.Tx) error { return nil })
			b.wraps(err, elector.ErrRolledBack, elector.ErrNotLeader, elector.ErrOldPrimary)
		},
		"Leader": func(b *bench, s *candidate, term *elector.Term) {
			_, err := s.Leader(b.Context())
			b.wraps(err, elector.ErrNoLeader)
		},
	} {
		for _, opts := range [][]elector.Option{nil, {elector.WithStandby(elector.Wait)}} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(b *bench) {
					var s *candidate
					back := hooks.Funcs{Demoted: func(context.Context, hooks.Demoted) {
						s.process.ConnectTo(b.Server) // the next connections lead to the old primary
					}}
					s = b.run("one", append(opts, longLease, elector.WithHooks(back))...)
					b.leads(s)
					term, _ := s.Term()
					old := term.Token()
					s.pool.SetMaxIdleConns(0)
					promoted := b.NewStandby(0)
					b.Cleanup(promoted.Close)
					b.wraps(promoted.Promote())
					s.process.ConnectTo(promoted)
					met := time.Now()
					meets(b, s, term)
					<-term.Context().Done()
					b.within("the term ends", 0, time.Since(met), 10*time.Millisecond)
					b.wraps(context.Cause(term.Context()), elector.ErrSessionLost, elector.ErrOldPrimary)
					time.Sleep(time.Minute)
					if n := len(b.Locks()); s.IsLeader() || n != 0 {
						b.Errorf("it leads on the old primary: %v, with %d locks", s.IsLeader(), n)
					}
					s.process.ConnectTo(promoted)
					b.leads(s)
					if term, _ := s.Term(); term.Token()>>48 <= old>>48 {
						b.Errorf("token %x follows %x", term.Token(), old)
					}
					reported := false
					for _, f := range s.rec.Failures() {
						reported = reported || f.Op == hooks.OpCampaign && errors.Is(f.Err, elector.ErrOldPrimary)
					}
					if !reported {
						b.Error("OnError did not report the old primary")
					}
				})
			})
		}
	}
}

// A cluster may return to an older timeline on purpose, for instance from a backup. It has a
// leader again after a lease.
func TestAnOldPrimaryThatIsAllThereIsIsLedAfterALease(t *testing.T) {
	bubble(t, func(b *bench) {
		promoted := b.NewStandby(0)
		b.wraps(promoted.Promote())
		var s *candidate
		s = b.run("one", elector.WithHooks(hooks.Funcs{Demoted: func(context.Context, hooks.Demoted) {
			promoted.Close()
			s.process.ConnectTo(b.Server)
		}}))
		b.leads(s)
		term, _ := s.Term()
		s.process.ConnectTo(promoted)
		s.pool.SetMaxIdleConns(0)
		b.wraps(term.InTx(b.Context(), s.pool, nil, func(*sql.Tx) error { return nil }), elector.ErrOldPrimary)
		<-term.Context().Done()
		b.within("it leads", lease-time.Second, b.leads(s), lease+5*time.Second)
	})
}
