package memory_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// everyHook calls f in each hook, with the hook's name.
func everyHook(f func(ctx context.Context, name string)) hooks.Funcs {
	return hooks.Funcs{
		Elected:       func(ctx context.Context, _ hooks.Elected) { f(ctx, "Elected") },
		Demoted:       func(ctx context.Context, _ hooks.Demoted) { f(ctx, "Demoted") },
		LeaderChanged: func(ctx context.Context, _ hooks.LeaderChanged) { f(ctx, "LeaderChanged") },
		Error:         func(ctx context.Context, _ hooks.Failure) { f(ctx, "Error") },
		Heartbeat:     func(ctx context.Context, _ hooks.Heartbeat) { f(ctx, "Heartbeat") },
		Campaign:      func(ctx context.Context, _ hooks.Campaign) { f(ctx, "Campaign") },
	}
}

// oneTerm makes a candidate fail, wait for another, and lead for two heartbeats, or until
// OnElected ends its term.
func oneTerm(b *bench, opts ...elector.Option) *candidate {
	other, one := b.candidate("other"), b.candidate("one", opts...)
	b.Stop()
	time.AfterFunc(time.Millisecond, func() {
		b.Start()
		term := b.campaign(other.Elector)
		time.AfterFunc(5*time.Second, func() { b.wraps(term.Resign(always)) })
	})
	term := b.campaign(one.Elector)
	select {
	case <-time.After(2*heartbeat + time.Second):
	case <-term.Context().Done():
	}
	b.wraps(term.Resign(always))
	synctest.Wait()
	return one
}

func TestHooksAreToldInThisOrder(t *testing.T) {
	bubble(t, func(b *bench) {
		one := oneTerm(b)
		var got []string
		for _, event := range one.rec.Events() {
			switch e := event.(type) {
			case hooks.Elected:
				got = append(got, "Elected")
			case hooks.Demoted:
				got = append(got, "Demoted")
			case hooks.LeaderChanged:
				got = append(got, "LeaderChanged to "+e.Current)
			case hooks.Failure:
				got = append(got, "Failure "+string(e.Op))
			case hooks.Heartbeat:
				got = append(got, "Heartbeat")
			case hooks.Campaign:
				got = append(got, "Campaign "+string(e.Outcome))
			}
		}
		got = slices.Compact(got) // the number of attempts does not matter
		want := []string{"Failure campaign", "Campaign failed", "LeaderChanged to other", "Campaign busy", "Campaign granted",
			"LeaderChanged to one", "Elected", "Heartbeat", "Demoted", "LeaderChanged to "}
		if !slices.Equal(got, want) || len(one.rec.Heartbeats()) != 2 {
			b.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

// A test that fails in a hook ends its goroutine with runtime.Goexit.
func TestAPanicInAHookIsReportedAndOnlyThatOfOnElectedEndsTheTerm(t *testing.T) {
	for _, which := range []string{"Elected", "Demoted", "LeaderChanged", "Error", "Heartbeat", "Campaign"} {
		scene(t, "panic in On"+which, func(b *bench) {
			one := oneTerm(b, elector.WithHooks(everyHook(func(_ context.Context, name string) {
				if name == which {
					panic("boom in " + name)
				}
			})))
			text := "boom in " + which
			if !slices.ContainsFunc(one.rec.Failures(), func(f hooks.Failure) bool { return f.Op == hooks.OpHook && strings.Contains(f.Err.Error(), text) }) {
				b.Errorf("reported %+v", one.rec.Failures())
			}
			if which != "Elected" {
				b.ended(one, hooks.Resigned)
				return
			}
			b.ended(one, hooks.LeadFailed)
			if err := one.rec.Demoted()[0].Err; !errors.Is(err, elector.ErrLeadFailed) || !strings.Contains(err.Error(), text) {
				b.Errorf("the term has ended by %v", err)
			}
		})
		scene(t, "Goexit in On"+which, func(b *bench) {
			one := oneTerm(b, elector.WithHooks(everyHook(func(_ context.Context, name string) {
				if name == which {
					runtime.Goexit()
				}
			})))
			b.ended(one, hooks.Resigned)
			if n := len(one.rec.Heartbeats()); n != 2 {
				b.Errorf("%d heartbeats", n)
			}
		})
	}
}

// Each hook is guarded by itself, also inside a Join: the panic of one is not held back by
// those after it.
func TestAPanicInOnElectedEndsTheTermAlthoughALaterHookDoesTheWork(t *testing.T) {
	panics := hooks.Funcs{Elected: func(context.Context, hooks.Elected) { panic("boom") }}
	works := hooks.Funcs{Elected: func(ctx context.Context, _ hooks.Elected) { <-ctx.Done() }}
	for name, all := range map[string][]hooks.Hook{
		"two hooks": {panics, works},
		"a Join":    {hooks.Join(panics, hooks.Join(works))},
	} {
		scene(t, name, func(b *bench) {
			one := b.candidate("one", elector.WithHooks(all...))
			term := b.campaign(one.Elector)
			b.failed(one, hooks.OpHook)
			if cause := context.Cause(term.Context()); !errors.Is(cause, elector.ErrLeadFailed) {
				b.Errorf("the term has ended by %v", cause)
			}
			b.wraps(term.Resign(always))
			b.ended(one, hooks.LeadFailed)
		})
	}
}

func TestEachPanicOfAnEventIsReported(t *testing.T) {
	bubble(t, func(b *bench) {
		panics := everyHook(func(_ context.Context, name string) {
			if name == "Demoted" {
				panic("boom")
			}
		})
		one := b.candidate("one", elector.WithHooks(panics, hooks.Join(panics, panics)))
		b.wraps(b.campaign(one.Elector).Resign(always))
		b.failed(one, hooks.OpHook, hooks.OpHook, hooks.OpHook)
	})
}

// brief has the method of one event only.
type brief struct{ demoted int }

func (h *brief) OnDemoted(context.Context, hooks.Demoted) { h.demoted++ }

func TestAHookReceivesOnlyTheEventsThatItHasMethodsFor(t *testing.T) {
	bubble(t, func(b *bench) {
		h := &brief{}
		one := b.candidate("one", elector.WithHooks(h))
		b.wraps(b.campaign(one.Elector).Resign(always))
		b.failed(one)
		if h.demoted != 1 {
			b.Errorf("demoted %d times", h.demoted)
		}
	})
}

func TestTheContextsOfHooksCarryValuesAndOnlyThatOfOnElectedEnds(t *testing.T) {
	type key struct{}
	bubble(t, func(b *bench) {
		var mu sync.Mutex
		seen := map[string]context.Context{}
		one := b.candidate("one", elector.WithHooks(everyHook(func(ctx context.Context, name string) {
			mu.Lock()
			defer mu.Unlock()
			seen[name] = ctx
		})))
		b.Stop()
		time.AfterFunc(time.Millisecond, b.Start)
		ctx, stop := context.WithTimeout(context.WithValue(always, key{}, "v"), 10*time.Second)
		defer stop()
		b.wraps(one.Run(ctx, func(ctx context.Context, term *elector.Term) error {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			if seen["Elected"] != term.Context() || ctx != term.Context() {
				b.Error("OnElected or lead got another context")
			}
			return nil
		}), context.DeadlineExceeded)
		if len(seen) != 6 {
			b.Errorf("called: %v", seen)
		}
		for name, ctx := range seen {
			if ended := ctx.Err() != nil; ctx.Value(key{}) != "v" || ended != (name == "Elected") {
				b.Errorf("%s: value %v, %v", name, ctx.Value(key{}), ctx.Err())
			}
		}
	})
}

// The recorder reports hooks that overlap, and an Elected or Demoted out of turn.
func TestHooksAreNeverConcurrentAndTermsAlternateHoweverSlowTheyAre(t *testing.T) {
	bubble(t, func(b *bench) {
		const terms = 30
		n := 0
		one := b.candidate("one", elector.WithHooks(everyHook(func(context.Context, string) { time.Sleep(rand.N(3 * time.Second)) })))
		b.wraps(one.Run(always, func(ctx context.Context, term *elector.Term) error {
			if n++; n == terms {
				return nil
			}
			time.AfterFunc(rand.N(10*time.Second), func() { _ = term.Resign(ctx) })
			<-ctx.Done()
			return nil
		}))
		before := len(one.rec.Events())
		time.Sleep(time.Hour)
		if len(one.rec.Elected()) != terms || len(one.rec.Demoted()) != terms || len(one.rec.Events()) != before {
			b.Errorf("%d terms began, %d ended; %d events after Run returned", len(one.rec.Elected()), len(one.rec.Demoted()), len(one.rec.Events())-before)
		}
	})
}

func TestOnElectedMayDoTheWorkAndOtherHooksWait(t *testing.T) {
	bubble(t, func(b *bench) {
		var one *candidate
		worked := false
		one = b.candidate("one", elector.WithHooks(hooks.Funcs{Elected: func(ctx context.Context, _ hooks.Elected) {
			<-ctx.Done()
			time.Sleep(time.Second)
			if len(one.rec.Heartbeats())+len(one.rec.Demoted()) != 0 {
				b.Errorf("reported meanwhile: %+v", one.rec.Events())
			}
			worked = true
		}}))
		b.runFor(21*time.Second, one)
		if n := len(one.rec.Heartbeats()); !worked || n != 1 { // the newest
			b.Errorf("worked %v, %d heartbeats reported", worked, n)
		}
		b.ended(one, hooks.Shutdown)
	})
}

func TestASlowOnHeartbeatDoesNotCostTheLease(t *testing.T) {
	bubble(t, func(b *bench) {
		const busy = 59500 * time.Millisecond
		calls := 0
		one := b.candidate("one", elector.WithHooks(hooks.Funcs{Heartbeat: func(context.Context, hooks.Heartbeat) {
			if calls++; calls <= 11 {
				time.Sleep(busy)
			}
		}}))
		term := b.campaign(one.Elector)
		time.Sleep(10*time.Minute + time.Second)
		if since := time.Since(term.RenewedAt()); !term.Valid() || since > heartbeat {
			b.Errorf("valid %v, renewed %v ago", term.Valid(), since)
		}
		beats := one.rec.Heartbeats()
		if len(beats) != 11 {
			b.Errorf("%d heartbeats reported", len(beats))
		}
		for i, beat := range beats { // a free hook gets the newest
			b.within("the age of a heartbeat", 0, beats[0].At.Add(time.Duration(i)*busy).Sub(beat.At), heartbeat)
		}
		b.wraps(term.Resign(always), elector.ErrOverrun) // of the hook
		time.Sleep(time.Minute)
		b.wraps(term.Resign(always))
	})
}

func TestTheLockIsNotReleasedNorTheNextCampaignBegunBeforeOnDemotedReturns(t *testing.T) {
	bubble(t, func(b *bench) {
		const slow = 5 * time.Second
		var one *candidate
		var demoted time.Time
		one = b.candidate("one", elector.WithHooks(hooks.Funcs{Demoted: func(context.Context, hooks.Demoted) {
			if demoted.IsZero() {
				time.Sleep(slow)
				if demoted = time.Now(); !b.holds(one.Elector) {
					b.Error("the lock was released")
				}
			}
		}}))
		b.wraps(one.Run(always, func(ctx context.Context, term *elector.Term) error {
			if !demoted.IsZero() {
				// Others try a retry interval after the release.
				b.within("the next term", retry, time.Since(demoted), retry)
				return nil
			}
			b.wraps(term.Resign(ctx), elector.ErrResigned)
			return nil
		}))
	})
}

// A hook that is added during a term receives the events from then on, beginning with the next
// OnElected, and none when it was removed. The hooks that were there receive all.
func TestAHookThatIsAddedLaterReceivesTheEventsFromThenOn(t *testing.T) {
	bubble(t, func(b *bench) {
		s := b.run("one")
		b.leads(s)
		later := hookstest.NewRecorder()
		remove, err := s.AddHooks(later)
		b.wraps(err)
		time.Sleep(3 * heartbeat)
		if n := len(later.Heartbeats()); n < 2 || n > 3 {
			b.Errorf("it received %d heartbeats", n)
		}
		again := func() {
			term, _ := s.Term()
			b.wraps(term.Resign(b.Context()))
			b.leads(s)
			synctest.Wait() // until the hooks have heard
		}
		again()
		again()
		remove()
		remove()
		again()
		if n, all := len(later.Elected()), len(s.rec.Elected()); n != 2 || all != 4 {
			b.Errorf("of %d terms it received %d", all, n)
		}
		if n, all := len(later.Demoted()), len(s.rec.Demoted()); n != 1 || all != 3 {
			b.Errorf("of %d ends it received %d", all, n)
		}
		for _, violation := range later.Violations() {
			b.Error(violation)
		}
		_, err = s.AddHooks(hooks.Funcs{})
		b.wraps(err, elector.ErrConfig)
	})
}

func TestAHookThatIsAddedDuringATermIsNotToldOfItsEnd(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.Open()
		defer pool.Close()
		e, err := elector.New(pool, "orders")
		b.wraps(err)
		term := b.campaign(e)
		synctest.Wait()
		later := hookstest.NewRecorder()
		_, err = e.AddHooks(later)
		b.wraps(err)
		b.wraps(term.Resign(always))
		synctest.Wait()
		if n := len(later.Events()); n != 0 {
			b.Errorf("it received %+v", later.Events())
		}
	})
}

func TestAHookMayRemoveItselfAndAddOthers(t *testing.T) {
	bubble(t, func(b *bench) {
		s := b.run("one")
		b.leads(s)
		removes := make(chan func(), 1)
		beats, next := 0, 0
		remove, err := s.AddHooks(hooks.Funcs{Heartbeat: func(context.Context, hooks.Heartbeat) {
			beats++
			(<-removes)()
			_, err := s.AddHooks(hooks.Funcs{Heartbeat: func(context.Context, hooks.Heartbeat) { next++ }})
			b.wraps(err)
		}})
		b.wraps(err)
		removes <- remove
		time.Sleep(5*heartbeat + time.Second)
		synctest.Wait()
		if beats != 1 || next != 4 {
			b.Errorf("it received %d heartbeats, and the one that it added %d", beats, next)
		}
	})
}

// It may be removed while another hook, before it, receives an event.
func TestAHookThatIsRemovedReceivesNoMore(t *testing.T) {
	bubble(t, func(b *bench) {
		removed := false
		var remove func()
		s := b.candidate("one", elector.WithHooks(hooks.Funcs{Heartbeat: func(context.Context, hooks.Heartbeat) {
			remove()
			removed = true
		}}))
		var err error
		remove, err = s.AddHooks(hooks.Funcs{Heartbeat: func(context.Context, hooks.Heartbeat) {
			if removed {
				b.Error("it was removed")
			}
		}})
		b.wraps(err)
		term := b.campaign(s.Elector)
		time.Sleep(2 * heartbeat)
		b.wraps(term.Resign(always))
	})
}

// One of a Join may remove all of it.
func TestAJoinThatIsRemovedReceivesNoMore(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		var remove func()
		var err error
		remove, err = one.AddHooks(hooks.Join(
			hooks.Funcs{Heartbeat: func(context.Context, hooks.Heartbeat) { remove() }},
			hooks.Funcs{Heartbeat: func(context.Context, hooks.Heartbeat) { b.Error("it was removed") }},
		))
		b.wraps(err)
		term := b.campaign(one.Elector)
		time.Sleep(2 * heartbeat)
		b.wraps(term.Resign(always))
	})
}

func TestHooksMayBeAddedAndRemovedAtAnyTime(t *testing.T) {
	bubble(t, func(b *bench) {
		s := b.run("one")
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 100 {
					later := hookstest.NewRecorder()
					remove, err := s.AddHooks(later)
					b.wraps(err)
					time.Sleep(heartbeat / 3)
					if term, leading := s.Term(); leading {
						_ = term.Resign(b.Context())
					}
					remove()
					for _, violation := range later.Violations() {
						b.Error(violation)
					}
				}
			})
		}
		all.Wait()
	})
}

// LastLeader asks nothing. A follower knows the leader if it has asked, or if a hook wants to.
func TestTheLastLeaderIsRemembered(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		time.Sleep(10 * heartbeat)
		if id, at := leader.LastLeader(); id != "leader" || time.Since(at) > heartbeat {
			b.Errorf("%q, %v ago", id, time.Since(at))
		}
		pool := b.Open()
		defer pool.Close()
		plain, err := elector.New(pool, "orders", elector.WithCandidateID("plain"))
		b.wraps(err)
		try := func() {
			_, elected, err := plain.TryCampaign(b.Context())
			if b.wraps(err); elected {
				b.Error("it is elected")
			}
		}
		knows := func(want string, age time.Duration) {
			b.Helper()
			if id, at := plain.LastLeader(); id != want || id != "" && time.Since(at) != age {
				b.Errorf("%q, %v ago, want %q, %v ago", id, time.Since(at), want, age)
			}
		}
		try()
		knows("", 0)
		_, err = plain.Leader(b.Context())
		b.wraps(err)
		time.Sleep(time.Minute)
		knows("leader", time.Minute)
		remove, err := plain.AddHooks(hooks.Funcs{LeaderChanged: func(context.Context, hooks.LeaderChanged) {}})
		b.wraps(err)
		try()
		knows("leader", 0)
		remove()
		time.Sleep(time.Minute)
		try()
		knows("leader", time.Minute)
		leader.stop()
		b.wraps(<-leader.done, context.Canceled)
		leader.done <- nil
		_, err = plain.Leader(b.Context())
		b.wraps(err, elector.ErrNoLeader) // which makes nobody the last leader
		knows("leader", time.Minute)
		term := b.campaign(plain)
		knows("plain", 0)
		time.Sleep(lease + heartbeat/2)
		b.wraps(term.Resign(b.Context()))
		time.Sleep(time.Minute)
		id, at := plain.LastLeader()
		if b.within("since it led", time.Minute, time.Since(at), time.Minute+heartbeat); id != "plain" {
			b.Errorf("got %q", id)
		}
	})
}

// A hook that has received both events of a term receives neither of the next one, which is lost
// before its OnElected.
func TestATermThatIsLostBeforeOnElectedIsNotReported(t *testing.T) {
	bubble(t, func(b *bench) {
		var holdsUp atomic.Bool
		one := b.candidate("one", elector.WithHooks(hooks.Funcs{Campaign: func(context.Context, hooks.Campaign) {
			if holdsUp.Load() {
				time.Sleep(3 * lease / 2)
			}
		}}))
		b.wraps(b.campaign(one.Elector).Resign(always))
		holdsUp.Store(true)
		term := b.campaign(one.Elector)
		b.Terminate(b.pid(one))
		b.wraps(term.Resign(always), elector.ErrOverrun)
		time.Sleep(lease)
		b.wraps(term.Resign(always), elector.ErrNotLeader)
		if n, m := len(one.rec.Elected()), len(one.rec.Demoted()); n != 1 || m != 1 {
			b.Errorf("elected %d times, demoted %d times", n, m)
		}
	})
}

// An OnElected that waits for a slow hook before it is work of the term, too.
func TestAnOnElectedThatBeginsAfterItsTermIsReportedIfItOverruns(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one", elector.WithHooks(hooks.Funcs{
			Campaign: func(context.Context, hooks.Campaign) { time.Sleep(time.Second) },
			Elected:  func(context.Context, hooks.Elected) { time.Sleep(time.Minute) },
		}))
		term := b.campaign(one.Elector)
		err := term.Resign(always)
		b.wraps(err, elector.ErrOverrun)
		b.failed(one, hooks.OpWork)
		for _, err := range []error{err, one.rec.Failures()[0].Err} {
			if !strings.Contains(err.Error(), "OnElected of hooks.Funcs") {
				b.Errorf("the hook is not named: %v", err)
			}
		}
		time.Sleep(time.Minute)
		b.wraps(term.Resign(always))
		b.ended(one, hooks.Resigned)
	})
}

// Each hook blocks in turn, the first time that it is called. The recorder is another hook.
func TestAHookThatDoesNotReturnIsReportedByNameUntilItDoes(t *testing.T) {
	for _, name := range []string{"Demoted", "LeaderChanged", "Error", "Heartbeat", "Campaign"} {
		scene(t, name, func(b *bench) {
			release := make(chan struct{})
			var calls atomic.Int32
			one := b.candidate("one", elector.WithHooks(everyHook(func(_ context.Context, called string) {
				if called == name && calls.Add(1) == 1 {
					<-release
				}
			})))
			b.Stop()
			time.AfterFunc(time.Millisecond, b.Start)
			done := make(chan struct{})
			go func() {
				defer close(done)
				term, err := one.Campaign(always)
				b.check(err)
				time.Sleep(2*heartbeat + time.Second)
				for err = term.Resign(always); errors.Is(err, elector.ErrOverrun); err = term.Resign(always) {
					if !strings.Contains(err.Error(), "On"+name+" of") {
						b.Errorf("the hook is not named: %v", err)
					}
				}
				b.wraps(err)
			}()
			time.Sleep(2 * lease)
			stuck := b.blocked(one)
			if text := stuck.Err.Error(); !strings.Contains(text, "On"+name+" of hooks.Funcs has not returned") {
				b.Errorf("reported: %v", text)
			}
			if name == "Error" && calls.Load() != 1 {
				b.Errorf("OnError, which does not return, was called %d times", calls.Load())
			}
			select {
			case <-stuck.Returned:
				b.Error("it is said to have returned")
			default:
			}
			time.Sleep(time.Minute)
			close(release)
			<-stuck.Returned
			<-done
			b.blocked(one) // once
		})
	}
}

// blocked returns the one report of a hook that does not return.
func (b *bench) blocked(s *candidate) (found hooks.Failure) {
	b.Helper()
	n := 0
	for _, f := range s.rec.Failures() {
		if f.Op == hooks.OpHook && f.Returned != nil {
			found = f
			n++
		}
	}
	if n != 1 {
		b.Fatalf("%d reports of a hook that does not return: %+v", n, s.rec.Failures())
	}
	return found
}

// A report of work that runs on reaches the hook that is just being told why the term ended.
func TestAnOverrunIsReportedToAHookThatIsBeingCalled(t *testing.T) {
	bubble(t, func(b *bench) {
		var overran atomic.Bool
		slow := hooks.Funcs{Error: func(_ context.Context, f hooks.Failure) {
			switch f.Op {
			case hooks.OpHeartbeat:
				time.Sleep(heartbeat * 11 / 10) // a bit longer than the drain
			case hooks.OpWork:
				overran.Store(true)
			}
		}}
		one := b.candidate("one", elector.WithHooks(slow))
		ctx, stop := context.WithCancel(always)
		ended := make(chan error)
		go func() {
			ended <- one.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
				<-ctx.Done()
				time.Sleep(lease / 2)
				return nil
			})
		}()
		b.leads(one)
		time.Sleep(time.Second)
		b.Terminate(b.pid(one))
		time.Sleep(lease)
		if !overran.Load() {
			b.Error("the work ran on, and nobody was told")
		}
		stop()
		b.wraps(<-ended, context.Canceled)
	})
}
