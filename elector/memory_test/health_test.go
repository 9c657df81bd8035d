package memory_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// vitals is a check with a result that a test sets. By default it runs each second, and three equal
// results in a row change the candidate's health.
type vitals struct {
	ill   atomic.Bool
	asked atomic.Int64
}

func (v *vitals) option() elector.CommonOption {
	return elector.WithHealth(func(context.Context) elector.HealthReport {
		v.asked.Add(1)
		if v.ill.Load() {
			return elector.HealthReport{Score: 0.2}
		}
		return elector.HealthReport{Score: 0.9}
	}, elector.HealthPolicy{})
}

func (v *vitals) turn(after time.Duration) {
	time.AfterFunc(after, func() { v.ill.Store(!v.ill.Load()) })
}

func TestAnUnhealthyCandidateCampaignsOnceItIsHealthy(t *testing.T) {
	bubble(t, func(b *bench) {
		v := &vitals{}
		v.ill.Store(true)
		v.turn(4500 * time.Millisecond) // so the checks of the seconds 5, 6 and 7 are good
		one := b.candidate("one", v.option())
		if h := one.Health(); h.Healthy || !h.At.IsZero() {
			b.Errorf("before the first check: %+v", h)
		}
		start := time.Now()
		time.AfterFunc(6999*time.Millisecond, func() {
			if h := one.Health(); h.Healthy || h.Score != 0.9 || h.Err != nil || len(one.rec.Campaigns()) > 0 {
				b.Errorf("before the third good check: %+v, campaigns %+v", h, one.rec.Campaigns())
			}
		})
		term := b.campaign(one.Elector)
		b.within("elected", 7*time.Second, time.Since(start), 7*time.Second)
		if h := one.Health(); !h.Healthy || !h.At.Equal(time.Now()) {
			b.Errorf("elected, and %+v", h)
		}
		b.wraps(term.Resign(always))
		b.failed(one, hooks.OpHealth)
		b.wraps(one.rec.Failures()[0].Err, elector.ErrUnhealthy)
		asked := v.asked.Load()
		time.Sleep(time.Minute)
		if v.asked.Load() != asked {
			b.Error("the check runs although nobody campaigns or leads")
		}
	})
}

func TestALeaderThatBecomesUnhealthyStepsDownInOrder(t *testing.T) {
	bubble(t, func(b *bench) {
		v := &vitals{}
		one := b.candidate("one", v.option())
		v.turn(4500 * time.Millisecond)
		start, terms := time.Now(), 0
		b.wraps(one.Run(always, func(ctx context.Context, term *elector.Term) error {
			if terms++; terms == 2 {
				b.within("elected again", 10*time.Minute, time.Since(start), 11*time.Minute)
				return nil
			}
			<-ctx.Done()
			b.within("stepped down", 7*time.Second, time.Since(start), 7*time.Second) // by the checks of the seconds 5, 6 and 7
			b.wraps(context.Cause(ctx), elector.ErrUnhealthy)
			if len(one.rec.Demoted()) > 0 || !b.holds(one.Elector) {
				b.Error("demoted, or the lock released, before the work has returned")
			}
			v.turn(10 * time.Minute)
			return context.Cause(ctx)
		}))
		b.ended(one, hooks.Unhealthy, hooks.Resigned)
		b.wraps(one.rec.Demoted()[0].Err, elector.ErrUnhealthy)
		b.failed(one, hooks.OpHealth)
	})
}

func TestAWaitingCandidateThatBecomesUnhealthyLeavesTheQueue(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		v := &vitals{}
		one := b.run("one", elector.WithTakeover(elector.Wait), v.option())
		v.turn(500 * time.Millisecond) // so the third bad check is that of the second 3
		time.Sleep(2900 * time.Millisecond)
		waits := func() bool {
			for _, lock := range b.Locks() {
				if lock.Application == "one" {
					return true
				}
			}
			return false
		}
		if !waits() {
			b.Error("it does not wait")
		}
		if time.Sleep(200 * time.Millisecond); waits() || one.pool.Stats().InUse != 0 {
			b.Error("it waits")
		}
		leader.stop()
		if time.Sleep(time.Hour); one.IsLeader() {
			b.Error("it leads")
		}
		v.turn(0)
		b.within("it leads", 0, b.leads(one), 5*time.Second)
		b.failed(one, hooks.OpHealth)
	})
}

// It returns the reason, after its hooks have returned.
func TestTryCampaignOfAnUnhealthyCandidateSendsNothing(t *testing.T) {
	for name, check := range map[string]func(context.Context) elector.HealthReport{
		"bad":    func(context.Context) elector.HealthReport { return elector.HealthReport{Score: 0.2} },
		"panics": func(context.Context) elector.HealthReport { panic("boom") },
		"hangs":  func(ctx context.Context) elector.HealthReport { <-ctx.Done(); return elector.HealthReport{Score: 1} },
	} {
		scene(t, name, func(b *bench) {
			reported := 0
			one := b.candidate("one", elector.WithHealth(check, elector.HealthPolicy{}), elector.WithHooks(hooks.Funcs{
				Error: func(context.Context, hooks.Failure) { time.Sleep(time.Second); reported++ }}))
			for i := range 2 {
				_, elected, err := one.TryCampaign(always)
				if b.wraps(err, elector.ErrUnhealthy); name == "bad" && !strings.Contains(err.Error(), "the score is 0.2") {
					b.Errorf("got %v", err)
				}
				if h := one.Health(); elected || h.Healthy || (h.Err == nil) != (name == "bad") || reported != i+1 || b.Connections() != 0 {
					b.Errorf("elected: %t; %+v; %d reports; %d connections", elected, h, reported, b.Connections())
				}
			}
			b.failed(one, hooks.OpHealth, hooks.OpHealth)
		})
	}
}

func TestTheEndOfTheCampaignEndsTheWaitForHealth(t *testing.T) {
	hangs := elector.WithHealth(func(ctx context.Context) elector.HealthReport { <-ctx.Done(); return elector.HealthReport{Score: 1} }, elector.HealthPolicy{Interval: time.Hour})
	for _, name := range []string{"Run", "Campaign", "TryCampaign", "TryRun"} {
		scene(t, name, func(b *bench) {
			one := b.candidate("one", hangs)
			ctx, stop := context.WithTimeout(always, time.Second)
			defer stop()
			start := time.Now()
			err := ways[name](ctx, one.Elector)
			b.wraps(err, context.DeadlineExceeded)
			if strings.HasPrefix(name, "Try") && !strings.Contains(err.Error(), "check the candidate's health") {
				b.Errorf("got %v", err)
			}
			b.within("it ends", time.Second, time.Since(start), time.Second)
		})
	}
	scene(t, "on a session that is closed", func(b *bench) {
		pool := b.Open()
		defer pool.Close()
		session, err := elector.NewSession(pool, hangs)
		b.wraps(err)
		one, err := session.Elector("orders")
		b.wraps(err)
		time.AfterFunc(time.Second, func() { b.wraps(session.Close(always)) })
		b.wraps(ways["Campaign"](always, one), elector.ErrStopped)
		synctest.Wait()
	})
}

// Only the unhealthy election of a session steps down. Each may have another check than the
// session's, or none.
func TestHealthIsOfEachElectionOfASession(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.Open()
		defer pool.Close()
		session, err := elector.NewSession(pool, elector.WithHealth(func(context.Context) elector.HealthReport { return elector.HealthReport{Score: 0} }, elector.HealthPolicy{}))
		b.wraps(err)
		sound, err := session.Elector("sound", elector.WithHealth(nil, elector.HealthPolicy{}))
		b.wraps(err)
		v := &vitals{}
		frail, err := session.Elector("frail", v.option())
		b.wraps(err)
		term := b.campaign(sound)
		v.turn(500 * time.Millisecond) // so the third bad check is that of the second 3
		ctx, stop := context.WithTimeout(always, 5*time.Second)
		defer stop()
		b.wraps(frail.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
			<-ctx.Done()
			b.wraps(context.Cause(ctx), elector.ErrUnhealthy)
			return nil
		}), context.DeadlineExceeded)
		if !term.Valid() || b.holds(frail) {
			b.Errorf("the other term is valid: %t; the lock is held: %t", term.Valid(), b.holds(frail))
		}
		b.wraps(term.Resign(always))
		b.wraps(session.Close(always))
	})
}

func TestACandidateCampaignsAtOnceWhenItIsHealthyAfterABadFirstCheck(t *testing.T) {
	bubble(t, func(b *bench) {
		first := true
		one := b.candidate("one", elector.WithRetryInterval(time.Hour), elector.WithHealth(func(context.Context) elector.HealthReport {
			defer func() { first = false }()
			time.Sleep(500 * time.Millisecond) // the candidate waits by then
			if first {
				return elector.HealthReport{Score: 0.2}
			}
			return elector.HealthReport{Score: 1}
		}, elector.HealthPolicy{CampaignAfter: 1}))
		start := time.Now()
		term := b.campaign(one.Elector)
		b.within("elected", 1500*time.Millisecond, time.Since(start), 1500*time.Millisecond)
		b.wraps(term.Resign(always))
	})
}

// The same check tells lead and ends the term.
func TestALeadThatIsTheFirstToSeeThatItIsUnhealthyEndsNoRun(t *testing.T) {
	for range 20 {
		bubble(t, func(b *bench) {
			v := &vitals{}
			one := b.candidate("one", v.option())
			ctx, stop := context.WithTimeout(always, time.Minute)
			defer stop()
			b.wraps(one.Run(ctx, func(context.Context, *elector.Term) error {
				v.ill.Store(true)
				for one.Health().Healthy {
					time.Sleep(time.Millisecond)
				}
				return errOops
			}), context.DeadlineExceeded)
			if d := one.rec.Demoted(); len(d) != 1 || d[0].Reason != hooks.Unhealthy {
				b.Errorf("demoted: %+v", d)
			}
		})
	}
}
