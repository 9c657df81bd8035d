package election_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// A reason that ends all terms has ended them when the call returns, and no term begins until it is taken back.
func TestARoomEndsAllItsTermsAtOnce(t *testing.T) {
	onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		room, r := &election.Terms{}, &recorder{}
		begun := make(chan *election.Term, 9)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		for key := range int64(2) {
			c := config(key)
			c.Terms = room
			if key == 0 {
				c.Observer = r
			}
			go func() {
				done <- election.New(election.NewSource(pool, sessions("a")), c).Run(ctx, func(ctx context.Context, term *election.Term) error {
					begun <- term
					<-ctx.Done()
					return nil
				})
			}()
		}
		one, two := <-begun, <-begun
		ill := errors.New("ill")
		room.Refuse("unhealthy", ill)
		for _, term := range []*election.Term{one, two} {
			if term.Valid() || election.ReasonOf(context.Cause(term.Context())) != "unhealthy" || !errors.Is(context.Cause(term.Context()), ill) {
				t.Error("a term goes on, or ended for another reason:", context.Cause(term.Context()))
			}
		}
		time.Sleep(time.Minute)
		if len(begun) > 0 || len(r.attempts) != 1 {
			t.Error("a refused candidate campaigned")
		}
		if _, err := election.New(election.NewSource(pool, sessions("b")), election.Config{Terms: room, Observer: quiet{}}).TryCampaign(ctx); !errors.Is(err, ill) {
			t.Error("TryCampaign:", err)
		}
		room.Refuse(election.Shutdown, errors.New("over"))
		room.Allow("unhealthy") // another reason still refuses
		time.Sleep(time.Minute)
		if len(begun) > 0 {
			t.Error("a refused candidate was elected")
		}
		room.Allow(election.Shutdown)
		<-begun
		<-begun
		room.End("a whim", errors.New("enough"))
		<-begun
		<-begun
		cancel()
		canceled(t, <-done)
		canceled(t, <-done)
	})
}

// late hands in a lock although its attempt was to end.
type late struct{}

func (late) Acquire(ctx context.Context, e *election.Election) election.Attempt {
	return e.Attempt(context.WithoutCancel(ctx))
}
func (late) Close() {}

// A term that begins while terms are refused ends before its work begins. The kernel's own attempt ends at once.
func TestATermThatIsRefusedMeanwhileDoesNoWork(t *testing.T) {
	for name, acquirer := range map[string]election.Acquirer{"the attempt ends": nil, "the lock comes late": late{}} {
		t.Run(name, func(t *testing.T) {
			onServer(t, func(t *testing.T, server *electortest.Server, process *electortest.Process, pool *sql.DB) {
				process.SetLatency(func() time.Duration { return time.Second })
				c, r := config(42), &recorder{}
				c.Terms, c.Observer, c.Acquirer = &election.Terms{}, r, acquirer
				time.AfterFunc(1500*time.Millisecond, func() { c.Terms.Refuse("unhealthy", errors.New("ill")) }) // while the lock is tried
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := election.New(election.NewSource(pool, sessions("a")), c).Run(ctx, func(context.Context, *election.Term) error {
					t.Error("work begins")
					return nil
				})
				begun := map[bool]int{true: 1, false: 0}[acquirer != nil]
				if !errors.Is(err, context.DeadlineExceeded) || len(r.reasons) != begun || begun > 0 && r.reasons[0] != "unhealthy" || r.failed > 0 {
					t.Error(err, r.reasons, r.failed)
				}
				time.Sleep(10 * time.Second) // the session is closed
				if n := len(server.Locks()); n != 0 {
					t.Error(n, "locks are left")
				}
			})
		})
	}
}

type key struct{}

// The context of a term has the values of the caller of Run or Campaign. Attempts that may go on for months have none, and nothing
// that the library sends by itself has any. One attempt is a part of the caller's call.
func TestOnlyTheTermHasTheCallersValues(t *testing.T) {
	onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		from := sessions("a")
		tried, beaten := "", "none"
		from.Statements = func(*election.Source) election.Statements { return valued{tried: &tried, beaten: &beaten} }
		ctx := context.WithValue(t.Context(), key{}, "mine")
		e := election.New(election.NewSource(pool, from), config(42))
		if err := e.Run(ctx, func(ctx context.Context, _ *election.Term) error {
			if ctx.Value(key{}) != "mine" {
				t.Error("the term has not the caller's values")
			}
			time.Sleep(3 * time.Second)
			return nil
		}); err != nil || tried != "" || beaten != "" {
			t.Errorf("%v: the attempt of Run carried %q, a heartbeat %q", err, tried, beaten)
		}
		term, err := e.Campaign(ctx)
		if err != nil || tried != "" || term.Context().Value(key{}) != "mine" {
			t.Errorf("%v: the attempt of Campaign carried %q", err, tried)
		}
		if err := term.Resign(ctx); err != nil {
			t.Error(err)
		}
		if term, err = e.TryCampaign(ctx); err != nil || tried != "mine" || term.Context().Value(key{}) != "mine" {
			t.Errorf("%v: the attempt of TryCampaign carried %q", err, tried)
		}
		time.Sleep(3 * time.Second)
		if err := term.Resign(ctx); err != nil || beaten != "" {
			t.Errorf("%v: a heartbeat carried %q", err, beaten)
		}
	})
}

// A lead that returns resigns; one that fails ends Run; a term that is lost is campaigned for again.
func TestRunSaysHowATermEnded(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		lead   func(ctx context.Context, server *electortest.Server, term *election.Term) error
		want   error
		reason election.Reason
	}{
		"lead returns": {func(context.Context, *electortest.Server, *election.Term) error { return nil }, nil, election.Resigned},
		"lead fails":   {func(context.Context, *electortest.Server, *election.Term) error { return failed }, failed, election.LeadFailed},
		"session lost": {func(ctx context.Context, server *electortest.Server, term *election.Term) error {
			server.Terminate(term.Lock().Session().PID())
			<-ctx.Done()
			return nil
		}, context.Canceled, election.SessionLost},
	} {
		t.Run(name, func(t *testing.T) {
			onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
				cfg, r := config(42), &recorder{}
				cfg.Observer = r
				ctx, cancel := context.WithCancel(t.Context())
				terms := 0
				err := election.New(election.NewSource(pool, sessions("a")), cfg).Run(ctx, func(ctx context.Context, term *election.Term) error {
					if terms++; terms == 2 {
						cancel()
						<-ctx.Done()
						return nil
					}
					return c.lead(ctx, server, term)
				})
				if !errors.Is(err, c.want) || r.reasons[0] != c.reason {
					t.Error(err, r.reasons)
				}
			})
		})
	}
}

// A panic of lead ends the term, and releases the lock.
func TestAPanicOfLeadReleasesTheLock(t *testing.T) {
	onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		func() {
			defer func() { _ = recover() }()
			_ = plain(pool, "a").Run(t.Context(), func(context.Context, *election.Term) error { panic("lead") })
		}()
		if n := len(server.Locks()); n != 0 {
			t.Error(n, "locks are left")
		}
	})
}

// Campaign's caller does the work: the lock is held until it resigns, or for the drain after a term that was lost.
func TestCampaignHandsTheTermOut(t *testing.T) {
	onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		e := plain(pool, "a")
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		other, err := plain(pool, "b").TryCampaign(t.Context())
		if other != nil || err != nil {
			t.Error("two lead, or the attempt failed:", other, err)
		}
		term.End("a whim", errors.New("enough"))
		time.Sleep(time.Second)
		if n := len(server.Locks()); n != 1 {
			t.Error("the lock is free before the caller resigned")
		}
		if err := term.Resign(t.Context()); err != nil || len(server.Locks()) != 0 {
			t.Error(err, len(server.Locks()))
		}
		if term, err = e.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		term.End("a whim", errors.New("enough"))
		<-term.Done()
		if took := time.Since(began); took != 2*time.Second {
			t.Error("a caller that does not resign had", took)
		}
	})
}

// Work that overruns is reported while the lock is held, and the lock is not released before the work returns.
func TestWorkThatOverrunsIsReportedAndWaitedFor(t *testing.T) {
	onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		c, r := config(42), &recorder{}
		c.Observer = r
		ctx, cancel := context.WithCancel(t.Context())
		canceled(t, election.New(election.NewSource(pool, sessions("a")), c).Run(ctx, func(context.Context, *election.Term) error {
			cancel()
			time.Sleep(time.Minute)
			if n := len(server.Locks()); n != 1 {
				t.Error("the lock is free before the work returned")
			}
			return nil
		}))
		if len(r.errs) != 1 || !errors.Is(r.errs[0], election.ErrOverrun) {
			t.Error(r.errs)
		}
	})
}

// Three terms in a row that were lost within a second of their grant make this candidate wait, and nobody else. A longer term
// sets that back.
func TestTermsThatDieYoungSlowTheirCandidate(t *testing.T) {
	onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		var began []time.Time
		c := config(42)
		ctx, cancel := context.WithCancel(t.Context())
		canceled(t, election.New(election.NewSource(pool, sessions("a")), c).Run(ctx, func(ctx context.Context, term *election.Term) error {
			began = append(began, time.Now())
			switch len(began) {
			case 5:
				time.Sleep(2 * time.Second) // a longer term
			case 8:
				cancel()
			}
			server.Terminate(term.Lock().Session().PID())
			<-ctx.Done()
			return nil
		}))
		var waits []time.Duration
		for i, at := range began[1:] {
			waits = append(waits, at.Sub(began[i]))
		}
		for i, slow := range []bool{false, false, true, true, false, false, false} {
			if i == 4 {
				waits[i] -= 2 * time.Second
			}
			if got := waits[i] > 700*time.Millisecond; got != slow { // each is lost within 250 ms
				t.Errorf("after term %d: %v, want slow %v", i+1, waits[i], slow)
			}
		}
		t.Log(waits)
	})
}

// A resignation is no loss, however young the term: nobody waits as after failures.
func TestShortTermsThatResignSlowNobody(t *testing.T) {
	onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		lead := func(context.Context, *election.Term) error { return nil }
		for name, run := range map[string]func(e *election.Election) error{
			"Run":    func(e *election.Election) error { return e.Run(t.Context(), lead) },
			"TryRun": func(e *election.Election) error { _, err := e.TryRun(t.Context(), lead); return err },
			"Campaign": func(e *election.Election) error {
				term, err := e.Campaign(t.Context())
				return errors.Join(err, term.Resign(t.Context()))
			},
		} {
			e, began := plain(pool, "a"), time.Now()
			for range 20 {
				if err := run(e); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("%s: 20 terms took %v", name, took)
			}
		}
	})
}

// After a term that was not lost, and that did not end Run, others may lead: for one retry interval, or for the rest.
func TestRunRestsBetweenItsTerms(t *testing.T) {
	for _, c := range []struct{ rest, want time.Duration }{{0, time.Second}, {3 * time.Second, 3 * time.Second}} {
		onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
			own := config(42)
			own.Rest, own.Terms = c.rest, &election.Terms{}
			began, terms := time.Now(), 0
			failed := errors.New("enough")
			if err := election.New(election.NewSource(pool, sessions("a")), own).Run(t.Context(), func(ctx context.Context, _ *election.Term) error {
				if terms++; terms == 21 {
					return failed
				}
				own.Terms.End("a whim", errors.New("enough of this term"))
				return nil
			}); !errors.Is(err, failed) {
				t.Error(err)
			}
			if took := time.Since(began); took != 20*c.want {
				t.Errorf("21 terms took %v, with a rest of %v", took, c.rest)
			}
		})
	}
}

// A standby is waited for by a candidate that has met a primary, and by others for AwaitPrimary.
func TestAStandbyThatIsMetAtFirstIsRefusedAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		standby := server.NewStandby(0)
		defer standby.Close()
		pool := standby.Open()
		defer pool.Close()
		c, began := config(42), time.Now()
		c.AwaitPrimary = 20 * time.Second
		err := election.New(election.NewSource(pool, sessions("a")), c).Run(t.Context(), func(context.Context, *election.Term) error { return nil })
		if took := time.Since(began); !errors.Is(err, pgerr.ErrServerReadOnly) || took < 20*time.Second || took > 26*time.Second {
			t.Error(err, took)
		}
		e := election.New(election.NewSource(pool, sessions("a")), c)
		time.AfterFunc(10*time.Second, func() { _ = standby.Promote() })
		if err := e.Run(t.Context(), func(context.Context, *election.Term) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

// A pool that is closed is refused.
func TestAClosedPoolIsRefused(t *testing.T) {
	onServer(t, func(t *testing.T, _ *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		pool.Close()
		err := plain(pool, "a").Run(t.Context(), func(context.Context, *election.Term) error { return nil })
		if !errors.Is(err, pgerr.ErrPoolClosed) {
			t.Error(err)
		}
	})
}

// MaxAttempts counts failures in a row.
func TestACandidateGivesUp(t *testing.T) {
	onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		server.Stop()
		c := config(42)
		c.MaxAttempts = 3
		err := election.New(election.NewSource(pool, sessions("a")), c).Run(t.Context(), func(context.Context, *election.Term) error { return nil })
		if !errors.Is(err, election.ErrGaveUp) {
			t.Error(err)
		}
	})
}
