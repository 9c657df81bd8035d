package memory_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

var synchronously = elector.WithSynchronousStandby(lease)

// replicated is bubble with a standby that must acknowledge each commit.
func replicated(t *testing.T, test func(b *bench)) {
	t.Helper()
	bubble(t, func(b *bench) {
		b.SetSynchronousStandbys("FIRST 1 (s1)", "s1")
		test(b)
	})
}

// term returns the term of a leader.
func (b *bench) term(s *candidate) *elector.Term {
	b.Helper()
	term, leading := s.Term()
	if !leading {
		b.Fatalf("%s does not lead", s.CandidateID())
	}
	return term
}

// demoted waits for the end of a candidate's term.
func (b *bench) demoted(s *candidate) hooks.Demoted {
	b.Helper()
	d, err := hookstest.Next[hooks.Demoted](context.Background(), s.rec.Cursor(), nil)
	b.wraps(err)
	return d
}

func TestAPrimaryThatIsNewToACandidateIsWaitedFor(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.run("one", synchronously)
		b.within("elected", lease, b.leads(one), lease+time.Second)
		if first := one.rec.Campaigns()[0]; first.Outcome != hooks.TooEarly || first.Next != lease {
			t.Errorf("the first attempt was %s, the next after %v", first.Outcome, first.Next)
		}
		if n := len(one.rec.Failures()); n != 0 {
			t.Errorf("%d failures are reported: %v", n, one.rec.Failures())
		}
		// A candidate that has known it for longer follows as usual.
		two := b.run("two", synchronously)
		time.Sleep(2 * lease)
		_ = b.term(one).Resign(context.Background())
		b.within("the next", 0, b.leads(two), 2*time.Second)
		if n := one.pool.Stats().InUse; n != 0 {
			t.Errorf("%d connections of the first are in use", n)
		}
	})
}

// The connection for commits takes some round trips, which are not taken from the time for
// the first commit.
func TestACandidateOnASlowLinkIsElectedByItsFirstAttempt(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.candidate("one", synchronously)
		one.pool.SetMaxIdleConns(-1) // each attempt dials
		one.process.SetLatency(func() time.Duration { return one.Settings().Validity / 12 })
		b.leads(b.start(one))
		for _, c := range one.rec.Campaigns() {
			if c.Outcome == hooks.Failed {
				b.Errorf("an attempt failed: %v", one.rec.Failures())
			}
		}
	})
}

func TestTryCampaignOnANewPrimaryReturnsAnError(t *testing.T) {
	replicated(t, func(b *bench) {
		s := b.candidate("one", elector.WithSynchronousStandby(2*lease))
		for _, wait := range []time.Duration{0, 2*lease - time.Second} {
			time.Sleep(wait)
			_, elected, err := s.TryCampaign(context.Background())
			b.wraps(err, elector.ErrTooEarly)
			synctest.Wait()
			if elected || len(b.Locks()) != 0 {
				t.Errorf("elected %v, locks %v", elected, b.Locks())
			}
		}
		time.Sleep(time.Second)
		term, elected, err := s.TryCampaign(context.Background())
		b.wraps(err)
		if !elected {
			t.Fatal("not elected after the wait")
		}
		b.wraps(term.Resign(context.Background()))
	})
}

// The link to the standby is cut: the leader's session lives, but its term must end.
func TestATermEndsWithinTheValidityOfItsLastAcknowledgedCommit(t *testing.T) {
	for name, opts := range map[string][]elector.Option{"polls": nil, "waits": {elector.WithTakeover(elector.Wait)}} {
		t.Run(name, func(t *testing.T) {
			replicated(t, func(b *bench) {
				one := b.run("one", append(opts, synchronously)...)
				b.leads(one)
				time.Sleep(3*heartbeat + heartbeat/2)
				if deadline := b.term(one).Deadline(); time.Until(deadline) < validity-heartbeat {
					t.Errorf("commits that are acknowledged leave %v", time.Until(deadline))
				}
				seen := &commits{waiting: map[int32]bool{}}
				b.Trace(seen.see)
				b.CutStandbys()
				cut := time.Now()
				for one.IsLeader() {
					time.Sleep(time.Millisecond)
				}
				b.within("no belief", validity-heartbeat, time.Since(cut), validity)
				d := b.demoted(one)
				b.within("the end of the term", validity-heartbeat, d.At.Sub(cut), validity)
				if d.Reason != hooks.LeaseExpired || !errors.Is(d.Err, elector.ErrLeaseExpired) || !strings.Contains(d.Err.Error(), "acknowledged") {
					t.Errorf("demoted because %s: %v", d.Reason, d.Err)
				}
				// Its attempts leave no commits behind, and elect nobody.
				if most := seen.during(10 * lease); most != 1 {
					t.Errorf("up to %d commits wait at once", most)
				}
				if one.IsLeader() || len(one.rec.Elected()) != 1 {
					t.Error("elected without an acknowledged commit")
				}
				b.ReconnectStandbys()
				b.leads(one)
			})
		})
	}
}

func TestALeaderOnAReplacedPrimaryHasStoppedWhenTheNextBegins(t *testing.T) {
	for name, driver := range map[string]electortest.Driver{"pgx": electortest.PGX, "pq": electortest.PQ} {
		t.Run(name, func(t *testing.T) {
			t.Run("without the option two believe", func(t *testing.T) {
				replicated(t, func(b *bench) {
					if _, _, both := b.replace(driver); !both {
						t.Error("only one believes: the test shows nothing")
					}
				})
			})
			for takeover, opts := range map[string][]elector.Option{"": nil, ", polling": {elector.WithTakeover(elector.Poll)}} {
				t.Run("with the option"+takeover, func(t *testing.T) {
					replicated(t, func(b *bench) {
						stopped, began, both := b.replace(driver, append(opts, synchronously)...)
						if both {
							t.Error("two believe at once")
						}
						b.within("the old leader stops", validity-heartbeat, stopped, validity)
						b.within("the next begins", lease, began, lease+validity)
					})
				})
			}
		})
	}
}

// replace promotes a standby while the old primary runs on. It returns when the old leader
// stops and the next begins to believe that it leads, and whether both do.
func (b *bench) replace(driver electortest.Driver, opts ...elector.Option) (stopped, began time.Duration, both bool) {
	b.Helper()
	standby := b.NewStandby(0)
	b.Cleanup(standby.Close)
	standby.SetSynchronousStandbys("FIRST 1 (s2)", "s2")
	old := b.run("old", opts...)
	old.process.SetDriver(driver)
	b.leads(old)
	next := b.run("next", opts...)
	next.process.SetDriver(driver)
	next.pool.SetMaxIdleConns(0) // each attempt connects to the current address
	time.Sleep(2*lease + heartbeat/2)

	b.CutStandbys()
	b.wraps(standby.Promote())
	next.process.ConnectTo(standby)
	promoted := time.Now()
	for !next.IsLeader() {
		if time.Since(promoted) > time.Minute {
			b.Fatal("nobody leads on the promoted server")
		}
		if old.IsLeader() {
			stopped = time.Since(promoted)
		}
		time.Sleep(time.Millisecond)
	}
	if n := standby.Connections(); len(opts) > 0 && n != 2 {
		b.Errorf("%d connections to the promoted server, want the session's and that for commits", n)
	}
	return stopped, time.Since(promoted), old.IsLeader()
}

// The first server of timeline 2 is discarded, and the next promoted standby has the same
// timeline number.
func TestAPrimaryWhoseTimelineWasUsedBeforeIsWaitedFor(t *testing.T) {
	replicated(t, func(b *bench) {
		discarded := b.NewStandby(0)
		defer discarded.Close()
		b.wraps(discarded.Promote())
		one := b.run("one", synchronously)
		one.pool.SetMaxIdleConns(0)
		one.process.ConnectTo(discarded) // which has no standby, so it is not led
		time.Sleep(3 * lease)
		one.process.ConnectTo(b.Server)
		b.leads(one)

		promoted := b.NewStandby(0)
		defer promoted.Close()
		promoted.SetSynchronousStandbys("FIRST 1 (s2)", "s2")
		b.CutStandbys()
		b.wraps(promoted.Promote())
		one.process.ConnectTo(promoted)
		b.demoted(one)
		stopped := time.Now()
		b.within("the next term", lease, b.leads(one), 2*lease)
		if term := b.term(one); term.Token()>>48 != 2 || term.ElectedAt().Sub(stopped) < lease {
			t.Errorf("elected on timeline %d after %v", term.Token()>>48, term.ElectedAt().Sub(stopped))
		}
	})
}

// The server is checked first, so that another candidate is not kept from the lock.
func TestACandidateWhoseTermEndedForItsStandbysDoesNotTakeTheLockAgain(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.run("one", synchronously)
		b.leads(one)
		time.Sleep(heartbeat)
		asked := b.count()
		b.SetSynchronousStandbys("", "s1")
		b.demoted(one)
		time.Sleep(time.Minute)
		if n := asked()["TryLock"]; n > 0 || len(b.Locks()) > 0 {
			b.Errorf("%d attempts, and locks %+v", n, b.Locks())
		}
	})
}

func TestACandidateWaitsUntilTheSettingIsSufficient(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one", synchronously)
		for setting, streaming := range map[string][]string{"": nil, "*": {"s1"}, "FIRST 1 (s1, s2)": {"s1", "s2"}, "FIRST 2 (s1, s2)": {"s1"}, "FIRST 1 (s1)": {"s1", "S1"}} {
			b.SetSynchronousStandbys(setting, streaming...)
			time.Sleep(2 * lease)
			failures := one.rec.Failures()
			last := failures[len(failures)-1]
			b.wraps(last.Err, elector.ErrNotSynchronous)
			synctest.Wait()
			if one.IsLeader() || last.Permanent || len(b.Locks()) > 0 {
				t.Errorf("%q: leads %v, permanent %v, locks %v", setting, one.IsLeader(), last.Permanent, b.Locks())
			}
		}
		b.SetSynchronousStandbys("FIRST 1 (s1)", "s1")
		b.within("elected", 0, b.leads(one), 5*time.Second) // the longest backoff
	})
}

// The lock is held until the work returns, even after the drain, and then released.
func TestATermEndsInOrderWhenTheSettingBecomesInsufficient(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.candidate("one", synchronously)
		ctx, stop := context.WithCancel(context.Background())
		kept := false
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = one.Run(ctx, func(ctx context.Context, term *elector.Term) error {
				<-ctx.Done()
				time.Sleep(validity - 2*heartbeat)
				kept = slices.ContainsFunc(b.Locks(), func(l electortest.Lock) bool { return l.Key == one.Key() })
				return nil
			})
		}()
		b.leads(one)
		time.Sleep(3 * heartbeat)
		b.SetSynchronousStandbys("", "s1")
		d := b.demoted(one) // when the work has returned
		b.wraps(d.Err, elector.ErrNotSynchronous)
		if d.Reason != hooks.LeaseExpired || !kept {
			t.Errorf("demoted because %s, the lock was kept %v", d.Reason, kept)
		}
		for _, f := range one.rec.Failures() {
			if f.Op == hooks.OpRelease {
				t.Errorf("the lock was not released: %v", f.Err)
			}
		}
		stop()
		<-done
	})
}

// The follower gets the lock after the leader, finds the same failure, and releases it too.
func TestTheFollowerReportsAtOnceThatTheSettingIsInsufficient(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.run("one", synchronously)
		b.leads(one)
		two := b.run("two", synchronously)
		time.Sleep(2 * lease)
		b.SetSynchronousStandbys("FIRST 1 (s1, s2)", "s1", "s2")
		changed := time.Now()
		f, err := hookstest.Next(context.Background(), two.rec.Cursor(), func(f hooks.Failure) bool { return errors.Is(f.Err, elector.ErrNotSynchronous) })
		b.wraps(err)
		b.within("the follower reports it", 0, f.At.Sub(changed), heartbeat+2*time.Second)
		if n := len(two.rec.Elected()); n > 0 {
			t.Errorf("the follower was elected %d times", n)
		}
	})
}

func TestASynchronousStandbyIsRefusedWhereItIsNotSupported(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.Open()
		defer pool.Close()
		for _, longest := range []time.Duration{-1, 0, lease - 1, 24*time.Hour + 1} {
			_, err := elector.New(pool, "orders", elector.WithSynchronousStandby(longest))
			b.wraps(err, elector.ErrConfig)
		}
		pool.SetMaxOpenConns(2)
		_, err := elector.New(pool, "orders", synchronously)
		b.wraps(err, elector.ErrConfig)
		pool.SetMaxOpenConns(3)
		_, err = elector.New(pool, "orders", synchronously)
		b.wraps(err)
	})
}

// Commits find their server by a lock. Without it none would ever count, which says less.
func TestACandidateWithoutRoomForTheLockOfItsCommitsSaysSoAtOnce(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.wired(fail("TryPair", 1, 1, serverError("53200", "out of shared memory")), "one", synchronously)
		_, _, err := one.TryCampaign(always)
		b.wraps(err, elector.ErrTooEarly)
		time.Sleep(lease)
		began := time.Now()
		_, _, err = one.TryCampaign(always)
		b.wraps(err, elector.ErrLockTableFull)
		b.within("it says so", 0, time.Since(began), 0)
		b.wraps(b.campaign(one.Elector).Resign(always))
	})
}

// commits counts the unanswered commits of a server.
type commits struct {
	mu      sync.Mutex
	waiting map[int32]bool
}

func (c *commits) see(e electortest.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case e.What == "CommitSynchronously" && !e.Done:
		c.waiting[e.PID] = true
	case e.Done && (e.What == "CommitSynchronously" || e.What == "ended"):
		delete(c.waiting, e.PID)
	}
}

// during watches for a time, and returns the maximum number of waiting commits.
func (c *commits) during(d time.Duration) (most int) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(heartbeat / 10) {
		c.mu.Lock()
		most = max(most, len(c.waiting))
		c.mu.Unlock()
	}
	return most
}

// The backend of a waiting commit outlives its client, as after a kill.
func TestCommitsOfAnElectionDoNotPileUp(t *testing.T) {
	replicated(t, func(b *bench) {
		seen := &commits{waiting: map[int32]bool{}}
		b.Trace(seen.see)
		first := b.run("first", synchronously)
		b.leads(first)
		b.CutStandbys()
		time.Sleep(2 * heartbeat)
		first.process.Kill()
		next := b.run("next", synchronously)
		if most := seen.during(10 * lease); most != 1 {
			t.Errorf("up to %d commits wait at once", most)
		}
		failures := next.rec.Failures()
		if last := failures[len(failures)-1]; !strings.Contains(last.Err.Error(), "an earlier one of this election still waits") {
			t.Errorf("the next candidate reports %v", last.Err)
		}
		if n := next.pool.Stats().InUse; n > 2 {
			t.Errorf("%d connections are in use", n)
		}
		b.ReconnectStandbys()
		b.leads(next)
	})
}

// The configuration is reloaded around the first commit: the attempt makes another commit on
// the same connection.
func TestAnAttemptMakesAnotherCommitOnTheSameConnection(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.run("one", synchronously)
		one.process.SetLatency(func() time.Duration { return time.Millisecond })
		var mu sync.Mutex
		connections, commits := 0, 0
		b.Trace(func(e electortest.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case e.What == "ApplySettings" && e.Done && e.Args[0] == false:
				connections++
			case e.What == "CommitSynchronously" && e.Done:
				if commits++; commits == 1 {
					go b.SetSynchronousStandbys("FIRST 1 (s1)", "s1")
				}
			}
		})
		b.leads(one)
		time.Sleep(lease)
		mu.Lock()
		defer mu.Unlock()
		if n := len(one.rec.Failures()); connections != 1 || commits < 3 || n != 0 {
			t.Errorf("%d commits on %d connections, failures: %v", commits, connections, one.rec.Failures())
		}
	})
}

// A tool cancels slow commits. The server answers as if they had been acknowledged.
func TestACommitWhoseWaitIsCancelledProvesNothing(t *testing.T) {
	for name, why := range map[string]string{"cut off": "cancelled the wait", "away": "does not stream"} {
		t.Run("the standby is "+name, func(t *testing.T) {
			replicated(t, func(b *bench) {
				one := b.run("one", synchronously)
				b.leads(one)
				time.Sleep(heartbeat)
				b.Trace(func(e electortest.Event) {
					if e.What == "CommitSynchronously" && !e.Done {
						time.AfterFunc(time.Millisecond, func() { b.Cancel(e.PID) })
					}
				})
				b.CutStandbys()
				if name == "away" {
					b.SetSynchronousStandbys("FIRST 1 (s1)")
				}
				cut := time.Now()
				time.Sleep(lease)
				b.ended(one, hooks.LeaseExpired)
				for _, d := range one.rec.Demoted() {
					b.within("the end of the term", validity-heartbeat, d.At.Sub(cut), validity)
					if !strings.Contains(d.Err.Error(), why) {
						t.Errorf("demoted by %v", d.Err)
					}
				}
			})
		})
	}
}

// The connection for commits breaks, and the next one reaches another server. Only a server of a
// later timeline has replaced the leader's. A stranger may have taken the locks there by which
// commits know their server.
func TestACommitOnAnotherServerProvesNothing(t *testing.T) {
	for name, c := range map[string]struct{ promoted, forged bool }{
		"promoted": {promoted: true}, "of the same timeline": {},
		"promoted, with forged locks": {promoted: true, forged: true}, "of the same timeline, with forged locks": {forged: true},
	} {
		t.Run(name, func(t *testing.T) {
			replicated(t, func(b *bench) {
				one := b.run("one", synchronously)
				b.leads(one)
				time.Sleep(heartbeat / 2)
				other := electortest.NewServer()
				if c.promoted {
					other = b.NewStandby(0)
					b.wraps(other.Promote())
				}
				defer other.Close()
				other.SetSynchronousStandbys("FIRST 1 (s2)", "s2")
				if c.forged {
					pool := other.Open()
					defer pool.Close()
					stranger, err := pool.Conn(always)
					b.wraps(err)
					defer stranger.Close()
					for _, l := range b.Locks() {
						if l.Guard && !l.Shared {
							high, low := int32(l.Key>>32), int32(l.Key)
							_, err := db.New(stranger).TryPair(always, db.TryPairParams{High: high, Low: low})
							b.wraps(err)
						}
					}
				}
				one.process.ConnectTo(other)
				b.Trace(func(e electortest.Event) {
					if e.What == "CommitSynchronously" && !e.Done {
						go b.Terminate(e.PID)
					}
				})
				d := b.demoted(one)
				if !c.promoted {
					if d.Reason != hooks.LeaseExpired || errors.Is(d.Err, elector.ErrOldPrimary) {
						t.Errorf("demoted because %s: %v", d.Reason, d.Err)
					}
					return
				}
				b.wraps(d.Err, elector.ErrSessionLost, elector.ErrOldPrimary)
				if !strings.Contains(d.Err.Error(), "timeline 2 has replaced timeline 1") {
					t.Errorf("demoted by %v", d.Err)
				}
			})
		})
	}
}

// The route leads to another server for a moment, while the candidate has the lock already.
func TestAFirstCommitOnAnotherServerIsRepeated(t *testing.T) {
	replicated(t, func(b *bench) {
		other := electortest.NewServer()
		defer other.Close()
		other.SetSynchronousStandbys("FIRST 1 (s1)", "s1")
		var one *candidate
		commits := 0
		one = b.wired(func(m message, send func() error) error {
			switch m.name {
			case "CONNECT":
				if commits == 0 && len(b.Locks()) > 0 {
					one.process.ConnectTo(other)
					defer one.process.ConnectTo(b.Server)
				}
			case "CommitSynchronously":
				commits++
			}
			return send()
		}, "one", synchronously)
		one.pool.SetMaxIdleConns(0)
		term := b.campaign(one.Elector)
		b.wraps(term.Resign(always))
		if commits < 2 {
			t.Error("the first was made on the candidate's server")
		}
		b.failed(one)
	})
}

// The connection for commits may be ready just when the time for the first one is over: nothing
// was committed then.
func TestAFirstCommitThatIsTooLateIsNone(t *testing.T) {
	for range 50 { // either may be seen first
		replicated(t, func(b *bench) {
			var again, setUp atomic.Bool
			one := b.wired(func(m message, send func() error) error {
				err := send()
				if setUp.Load() && m.name == "DescribeServer" && again.CompareAndSwap(true, false) {
					time.Sleep(validity)
				}
				setUp.Store(m.name == "ApplySettings")
				return err
			}, "one", synchronously)
			b.wraps(b.campaign(one.Elector).Resign(always))
			again.Store(true)
			term, elected, err := one.TryCampaign(always)
			if errors.Is(err, elector.ErrTooEarly) {
				b.Errorf("got %v", err)
			}
			if elected { // by one more try
				b.wraps(term.Resign(always))
			}
			b.wraps(b.campaign(one.Elector).Resign(always))
		})
	}
}

// The session's validity is over then. The attempt must not go on and blame the session.
func TestAnAttemptThatGetsNoConnectionForCommitsInTimeSaysSo(t *testing.T) {
	replicated(t, func(b *bench) {
		var granted, hung atomic.Bool
		one := b.wired(func(m message, send func() error) error {
			switch {
			case m.name == "Confirm":
				granted.Store(true)
			case m.name == "CONNECT" && granted.Load() && hung.CompareAndSwap(false, true):
				time.Sleep(lease)
			}
			return send()
		}, "one", synchronously)
		one.pool.SetMaxIdleConns(-1) // each attempt dials
		_, _, err := one.TryCampaign(always)
		b.wraps(err, elector.ErrTooEarly)
		time.Sleep(lease)
		_, _, err = one.TryCampaign(always)
		if text := fmt.Sprint(err); !strings.Contains(text, "take a connection from the pool") || !strings.Contains(text, "have not acknowledged a commit within") {
			b.Errorf("got %v", err)
		}
		time.Sleep(lease)
		b.wraps(b.campaign(one.Elector).Resign(always))
	})
}

// Only an idle connection with a transaction that others left open is passed over at once, since there
// may be more of them. The next commit tries another one in any case.
func TestAConnectionForCommitsThatFailsIsReplacedAfterAPause(t *testing.T) {
	aborted := serverError("25P02", "current transaction is aborted")
	for name, c := range map[string]struct {
		err   error
		keeps int // idle connections, of which the session takes one
		tried int // until the pause: for the attempt, and for its first commit
	}{
		"a new one, in a transaction":   {aborted, 0, 2},
		"an idle one, in a transaction": {aborted, 2, 3},
		"an idle one":                   {errOops, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			replicated(t, func(b *bench) {
				var granted time.Time
				tried := 0
				one := b.wired(func(m message, send func() error) error {
					switch {
					case m.name == "Confirm":
						granted = time.Now()
					case m.name == "DescribeServer" && time.Now().Equal(granted) && tried < 10:
						tried++
						return c.err
					}
					return send()
				}, "one", synchronously)
				_, _, err := one.TryCampaign(always)
				b.wraps(err, elector.ErrTooEarly)
				time.Sleep(lease)
				one.pool.SetMaxIdleConns(c.keeps)
				b.wraps(b.campaign(one.Elector).Resign(always))
				if tried != c.tried {
					b.Errorf("%d connections were tried, want %d", tried, c.tried)
				}
			})
		})
	}
}

// Each reload may have changed the setting and back.
func TestACommitAroundWhichTheConfigurationIsReloadedProvesNothing(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.run("one", synchronously)
		b.leads(one)
		one.process.SetLatency(func() time.Duration { return time.Millisecond })
		time.Sleep(3 * heartbeat)
		b.Trace(func(e electortest.Event) {
			if e.What == "CommitSynchronously" && e.Done {
				go b.SetSynchronousStandbys("FIRST 1 (s1)", "s1")
			}
		})
		reloaded := time.Now()
		d := b.demoted(one)
		b.within("the end of the term", validity-heartbeat, d.At.Sub(reloaded), validity)
		if d.Reason != hooks.LeaseExpired || !strings.Contains(d.Err.Error(), "reloaded") {
			t.Errorf("demoted because %s: %v", d.Reason, d.Err)
		}
	})
}

// The connection for commits ends repeatedly, while the session's own lives.
func TestAConnectionForCommitsThatEndsIsReplaced(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.run("one", synchronously)
		b.leads(one)
		var mu sync.Mutex
		ended, beats, slowest := 0, map[time.Time]bool{}, time.Duration(0)
		last := time.Now()
		broken := false
		b.Trace(func(e electortest.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.What == "CommitSynchronously" && !e.Done && broken {
				slowest, broken = max(slowest, time.Since(last)), false
			}
			switch {
			case e.What == "CommitSynchronously" && !e.Done && time.Since(last) > 3*heartbeat/2:
				last, broken = time.Now(), true
				ended++
				go b.Terminate(e.PID)
			case e.What == "Ping" && e.Done:
				beats[time.Now()] = true
			}
		})
		time.Sleep(10 * lease)
		b.Trace(nil)
		mu.Lock()
		defer mu.Unlock()
		if n := len(one.rec.Demoted()); n > 0 || ended < 10 {
			t.Errorf("demoted %d times, %d connections ended: %v", n, ended, one.rec.Demoted())
		}
		if n := len(beats); n <= int(10*lease/heartbeat) { // otherwise the session ended as well
			t.Errorf("%d heartbeats in %v", n, 10*lease)
		}
		b.within("the next commit", 0, slowest, heartbeat*5/4) // the end of an idle connection shows when it is next used
		time.Sleep(2 * heartbeat)
		b.CutStandbys()
		if d := b.demoted(one); strings.Contains(d.Err.Error(), "terminat") {
			t.Errorf("a past failure is reported as the reason: %v", d.Err)
		}
	})
}

// The connection for commits breaks, and not the session's. The work that winds down when the
// validity runs out keeps its lock, also if the term ended before.
func TestABrokenConnectionForCommitsCostsTheWorkNoDrain(t *testing.T) {
	for name, want := range map[string]error{"the validity runs out": elector.ErrLeaseExpired, "the setting becomes insufficient": elector.ErrNotSynchronous} {
		t.Run(name, func(t *testing.T) {
			replicated(t, func(b *bench) {
				one := b.candidate("one", synchronously)
				ctx, stop := context.WithCancel(always)
				done, kept := make(chan error), false
				go func() {
					done <- one.Run(ctx, func(ctx context.Context, term *elector.Term) error {
						<-ctx.Done()
						stop()
						time.Sleep(time.Until(term.Deadline()) + lease/10) // the drain is a fifth
						kept = slices.ContainsFunc(b.Locks(), func(l electortest.Lock) bool { return l.Key == one.Key() })
						return nil
					})
				}()
				b.leads(one)
				time.Sleep(heartbeat / 2)
				b.Trace(func(e electortest.Event) {
					if e.What == "CommitSynchronously" && !e.Done {
						time.AfterFunc(time.Millisecond, func() { b.Terminate(e.PID) })
					}
				})
				b.CutStandbys()
				if want == elector.ErrNotSynchronous {
					time.Sleep(heartbeat)
					b.Trace(nil)
					b.SetSynchronousStandbys("", "s1")
				}
				<-done
				d := b.demoted(one)
				b.wraps(d.Err, want)
				if !kept {
					t.Error("the lock is free while the work winds down")
				}
				if want == elector.ErrLeaseExpired && !strings.Contains(d.Err.Error(), "terminating connection") {
					t.Errorf("the reason is not said: %v", d.Err)
				}
			})
		})
	}
}

// Other code leaves transactions open on connections of the pool, and the one for commits ends.
// In such a transaction nothing is committed, and no standby is waited for.
func TestNoCommitIsMadeInATransactionThatOthersLeftOpen(t *testing.T) {
	replicated(t, func(b *bench) {
		const spoilt = 5
		one := b.wiredBy(true, func(_ message, send func() error) error { return send() }, "one", synchronously)
		one.pool.SetMaxIdleConns(spoilt)
		b.leads(b.start(one))
		var mu sync.Mutex
		var pid int32
		open, within, outside := map[int32]bool{}, 0, 0
		b.Trace(func(e electortest.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case e.What == "left open":
				open[e.PID] = true
			case e.What == "CommitSynchronously" && e.Err == nil && open[e.PID]:
				within++
			case e.What == "CommitSynchronously" && e.Err == nil:
				pid = e.PID
				outside++
			}
		})
		b.Handle(func(electortest.Statement) (electortest.Answer, error) { return electortest.Answer{}, nil })
		time.Sleep(heartbeat + heartbeat/2)
		var conns []*sql.Conn
		for range spoilt {
			conn, err := one.pool.Conn(always)
			b.check(err)
			for _, statement := range []string{"BEGIN", "left open"} {
				_, err = conn.ExecContext(always, statement)
				b.check(err)
			}
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			b.check(conn.Close())
		}
		b.Terminate(pid)
		time.Sleep(3 * heartbeat)
		mu.Lock()
		defer mu.Unlock()
		if len(open) != spoilt || within > 0 || outside < 4 {
			t.Errorf("%d transactions were left open; %d commits were sent or answered inside one, %d outside", len(open), within, outside)
		}
		b.ended(one)
	})
}

// An unacknowledged commit is abandoned when the candidate stops.
func TestAResignationDoesNotWaitForACommit(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.run("one", synchronously)
		b.leads(one)
		b.CutStandbys()
		time.Sleep(heartbeat + heartbeat/2)
		began := time.Now()
		one.stop()
		<-one.done
		one.done <- nil // for the end of the test
		b.within("Run returns", 0, time.Since(began), 2*time.Second)
		time.Sleep(time.Second)
		if n := one.pool.Stats().InUse; len(b.Locks()) > 0 || n > 0 {
			t.Errorf("locks %v are left, %d connections are in use", b.Locks(), n)
		}
	})
}

// The figures of docs/servers.md.
func TestSynchronousStandbysCostALeaderTwoStatementsPerHeartbeatAndAFollowerNone(t *testing.T) {
	replicated(t, func(b *bench) {
		leader := b.run("leader", synchronously)
		b.leads(leader)
		b.run("follower", synchronously, elector.WithTakeover(elector.Poll))
		time.Sleep(2*lease + heartbeat/2)
		asked := map[string]int{}
		var mu sync.Mutex
		b.Trace(func(e electortest.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Done && e.What != "connected" && e.What != "ended" {
				asked[e.What]++
			}
		})
		const beats = 100
		time.Sleep(beats * heartbeat)
		mu.Lock()
		defer mu.Unlock()
		if tries := asked["TryLock"]; tries == 0 {
			t.Error("the follower does not follow")
		}
		delete(asked, "TryLock")
		for _, name := range []string{"Ping", "CommitSynchronously", "SynchronousStandbys"} {
			if n := asked[name]; n < beats-1 || n > beats+1 {
				t.Errorf("%s %d times in %d heartbeat intervals", name, n, beats)
			}
			delete(asked, name)
		}
		if n, want := asked["ValidateLocks"], int(beats*heartbeat/time.Second); n < want*9/10 || n > want+1 {
			t.Errorf("the lock is validated %d times, want about %d", n, want)
		}
		delete(asked, "ValidateLocks")
		if n, want := asked["Holder"], int(beats*heartbeat/time.Minute); n > want+1 { // who polls looks whether the leader is silent
			t.Errorf("the follower asks %d times who leads, want once a minute", n)
		}
		delete(asked, "Holder")
		delete(asked, "ApplySettings") // of its connection
		if len(asked) > 0 {
			t.Errorf("other statements: %v", asked)
		}
	})
}

// A heartbeat finds another backend. The next check looks for the pooler again, and never tries to lead
// inside a transaction.
func TestASynchronousLeaderThatAPoolerHasMovedLeadsAgainWithoutThePooler(t *testing.T) {
	replicated(t, func(b *bench) {
		var moves atomic.Bool
		b.Handle(func(electortest.Statement) (electortest.Answer, error) {
			return electortest.Answer{Rows: [][]any{{int64(1), false, false}}}, nil
		})
		one := b.wired(func(m message, send func() error) error {
			if m.name == "Ping" && moves.Swap(false) {
				*m.text = "Ping of another backend"
			}
			return send()
		}, "one", synchronously)
		b.leads(b.start(one))
		moves.Store(true)
		b.wraps(b.demoted(one).Err, elector.ErrSessionLost, elector.ErrSessionPooled)
		b.within("it leads again", 0, b.leads(one), lease)
		if one.Settings().Scope == elector.TransactionScope {
			b.Error("it leads inside a transaction")
		}
	})
}

// Whether it could lead is asked before the lock is, and why not is said.
func TestACandidateThatCannotAskForTheStandbysSaysWhy(t *testing.T) {
	full := serverError("53200", "out of shared memory")
	for name, c := range map[string]struct {
		wire func(b *bench) wire
		want error
	}{
		"refused": {func(*bench) wire { return fail("SynchronousStandbys", 2, 2, full) }, elector.ErrLockTableFull},
		"demoted": {func(b *bench) wire {
			one, again := b.answers("SynchronousStandbys", 2, int32(1), int64(0), int64(0), "", int64(0), "[]"), b.answers("SynchronousStandbys", 3, int32(1), int64(0), int64(0), "", int64(0), "[]")
			return func(m message, send func() error) error { // one more try follows
				return one(m, func() error { return again(m, send) })
			}
		}, elector.ErrServerReadOnly},
	} {
		t.Run(name, func(t *testing.T) {
			replicated(t, func(b *bench) {
				one := b.wired(c.wire(b), "one", synchronously)
				_, _, err := one.TryCampaign(always)
				b.wraps(err, elector.ErrTooEarly)
				time.Sleep(lease)
				_, elected, err := one.TryCampaign(always)
				if b.wraps(err, c.want); elected || errors.Is(err, elector.ErrServerReadOnly) != (name == "demoted") {
					b.Errorf("elected %t, %v", elected, err)
				}
				b.leftNothing(one)
				b.wraps(b.campaign(one.Elector).Resign(always))
			})
		})
	}
}

// The connection for commits has the settings of a session, but for one. If the server refuses them,
// another connection is tried, and after a pause another.
func TestTheConnectionForCommitsIsSetUpLikeASession(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.wired(fail("ApplySettings", 4, 5, serverError("53200", "out of shared memory")), "one", synchronously)
		_, _, err := one.TryCampaign(always)
		b.wraps(err, elector.ErrTooEarly)
		time.Sleep(lease)
		var mu sync.Mutex
		var applied []string
		b.Trace(func(e electortest.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.What == "ApplySettings" && !e.Done {
				applied = append(applied, fmt.Sprint(e.Args))
			}
		})
		term := b.campaign(one.Elector)
		synctest.Wait()
		mu.Lock()
		last := applied[len(applied)-1]
		mu.Unlock()
		for _, want := range []string{"application_name", "idle_session_timeout", `"synchronous_commit","value":"on"`} {
			if !strings.Contains(last, want) {
				b.Errorf("no %s in %s", want, last)
			}
		}
		if n := one.pool.Stats().InUse; n != 2 {
			b.Errorf("%d connections are in use", n)
		}
		b.wraps(term.Resign(always))
	})
}

// Commits are acknowledged, and heartbeats not answered. Each alone proves nothing.
func TestATermEndsWithTheValidityOfItsLastHeartbeatThoughCommitsAreAcknowledged(t *testing.T) {
	replicated(t, func(b *bench) {
		var hangs atomic.Bool
		var answered atomic.Int64
		one := b.wired(func(m message, send func() error) error {
			if m.name == "Ping" && hangs.Load() {
				time.Sleep(lease)
			} else if m.name == "Ping" {
				answered.Store(time.Now().UnixNano())
			}
			return send()
		}, "one", synchronously)
		_, _, err := one.TryCampaign(always)
		b.wraps(err, elector.ErrTooEarly)
		time.Sleep(lease)
		term := b.campaign(one.Elector)
		time.Sleep(heartbeat + heartbeat/2)
		hangs.Store(true)
		<-term.Context().Done()
		b.within("the term ends", 0, time.Since(time.Unix(0, answered.Load())), validity)
		cause := context.Cause(term.Context())
		if b.wraps(cause, elector.ErrLeaseExpired); !strings.Contains(cause.Error(), "no heartbeat was answered") {
			b.Errorf("got %v", cause)
		}
		b.wraps(term.Resign(always), elector.ErrNotLeader)
		time.Sleep(lease)
	})
}

// Its session may end while it waits for its first commit to be acknowledged: nobody asks the session
// meanwhile.
func TestNoTermBeginsOnASessionThatHasEndedDuringTheFirstCommit(t *testing.T) {
	replicated(t, func(b *bench) {
		one := b.candidate("one", synchronously)
		b.wraps(b.campaign(one.Elector).Resign(always)) // it knows the primary for long
		b.CutStandbys()
		ctx, stop := context.WithCancel(always)
		var begun atomic.Int32
		ended := make(chan error)
		go func() {
			ended <- one.Run(ctx, func(ctx context.Context, term *elector.Term) error {
				begun.Add(1)
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(100 * time.Millisecond)
		holder := int32(0)
		for _, l := range b.Locks() {
			if l.Key == one.Key() && !l.Guard {
				holder = l.PID
			}
		}
		b.Terminate(holder)
		time.Sleep(100 * time.Millisecond)
		b.ReconnectStandbys()
		time.Sleep(lease)
		if n := begun.Load(); n != 1 || holder == 0 || !one.IsLeader() {
			b.Errorf("after the end of backend %d: %d terms began; it leads: %t", holder, n, one.IsLeader())
		}
		stop()
		b.wraps(<-ended, context.Canceled)
	})
}
