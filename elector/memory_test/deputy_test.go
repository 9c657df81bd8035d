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

const (
	deputyInterval = 100 * time.Millisecond
	retry          = 3 * time.Second
)

// deputies returns the ids of the candidates that hold a seat and do not lead.
func (b *bench) deputies(of *candidate) (ids []string) {
	b.Helper()
	all, err := of.Candidates(context.Background())
	b.wraps(err)
	for _, c := range all {
		if c.Deputy {
			ids = append(ids, c.CandidateID)
		}
	}
	return ids
}

// isDeputy fails the test unless s is the only deputy.
func (b *bench) isDeputy(s *candidate) {
	b.Helper()
	if ids := b.deputies(s); len(ids) != 1 || ids[0] != s.CandidateID() {
		b.Errorf("deputies: %v, want %s", ids, s.CandidateID())
	}
	attempts := s.rec.Campaigns()
	if n := len(attempts); n == 0 || !attempts[n-1].Deputy {
		b.Errorf("the attempts of %s do not report that it is the deputy: %+v", s.CandidateID(), attempts)
	}
}

// follow starts candidates, one after the other.
func (b *bench) follow(n int, opts ...elector.Option) (all []*candidate) {
	for i := range n {
		all = append(all, b.run(fmt.Sprintf("follower-%d", i), opts...))
		time.Sleep(time.Second)
	}
	return all
}

var takeovers = map[string]struct {
	opts  []elector.Option
	bound time.Duration // until the deputy leads
}{
	"the default": {nil, deputyInterval + time.Millisecond},
	"an interval": {[]elector.Option{elector.WithDeputyInterval(10 * time.Millisecond)}, 11 * time.Millisecond},
	"waiting":     {[]elector.Option{elector.WithTakeover(elector.Wait)}, time.Millisecond},
}

func TestTheDeputyLeadsSoonAfterTheLeaderIsGone(t *testing.T) {
	for name, takeover := range takeovers {
		for way, end := range map[string]func(*bench, *candidate){
			"killed":     func(_ *bench, leader *candidate) { leader.process.Kill() },
			"resigned":   func(_ *bench, leader *candidate) { leader.stop() },
			"terminated": func(b *bench, leader *candidate) { b.Terminate(b.pid(leader)) },
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				bubble(t, func(b *bench) {
					leader := b.candidate("leader")
					leader.process.SetDriver(electortest.PQ) // with pgx it would learn it before the deputy looks, and lead again
					b.leads(b.start(leader))
					followers := b.follow(5, takeover.opts...)
					b.isDeputy(followers[0])
					end(b, leader)
					began := time.Now()
					for !slices.ContainsFunc(followers, (*candidate).IsLeader) { // another follower's attempt may come first
						time.Sleep(100 * time.Microsecond)
					}
					b.within("another leads", 0, time.Since(began), takeover.bound)
					time.Sleep(retry)
					if n := len(b.deputies(followers[0])); n != 1 {
						b.Errorf("%d deputies", n)
					}
				})
			})
		}
	}
}

func TestAFleetPinsTwoSessionsAndSendsFewStatements(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		followers := b.follow(20)
		asked := b.count()
		time.Sleep(time.Minute)
		counts := asked()
		pinned := leader.pool.Stats().InUse
		for _, f := range followers {
			pinned += f.pool.Stats().InUse
		}
		if pinned != 2 {
			b.Errorf("%d connections are pinned, want those of the leader and the deputy", pinned)
		}
		// A follower waits for at least three quarters of its retry interval.
		if most := len(followers) * int(time.Minute/(retry*3/4)); counts["TryLock"] > most || counts["TryLock"] < most/2 {
			b.Errorf("%d attempts in a minute, want at most %d", counts["TryLock"], most)
		}
		if n := counts["TryAsDeputy"]; n < 590 || n > 605 {
			b.Errorf("the deputy tries %d times in a minute", n)
		}
	})
}

// done returns a channel that receives when the server has executed a statement of that name.
func (b *bench) done(statement string) <-chan bool {
	done := make(chan bool, 1)
	b.Trace(func(e electortest.Event) {
		if e.What == statement && e.Done {
			select {
			case done <- true:
			default:
			}
		}
	})
	return done
}

// count counts the statements from now on.
func (b *bench) count() (counts func() map[string]int) {
	var mu sync.Mutex
	asked := map[string]int{}
	b.Trace(func(e electortest.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Done {
			asked[e.What]++
		}
	})
	return func() map[string]int {
		b.Trace(nil)
		mu.Lock()
		defer mu.Unlock()
		return asked
	}
}

func TestTheNextAttemptReplacesADeputyThatIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		end         func(*bench, *candidate)
		least, most time.Duration
	}{
		"killed":  {func(_ *bench, s *candidate) { s.process.Kill() }, 0, retry},
		"stopped": {func(_ *bench, s *candidate) { s.stop() }, 0, retry},
		"frozen":  {func(_ *bench, s *candidate) { s.process.Freeze() }, validity, lease + retry},
		"cut off": {func(_ *bench, s *candidate) { s.process.Cut(electortest.Both) }, validity, lease + retry},
	} {
		for takeover, with := range takeovers {
			t.Run(name+", "+takeover, func(t *testing.T) {
				bubble(t, func(b *bench) {
					leader := b.run("leader")
					b.leads(leader)
					followers := b.follow(5, with.opts...)
					b.isDeputy(followers[0])
					c.end(b, followers[0])
					began := time.Now()
					for ids := b.deputies(leader); len(ids) != 1 || ids[0] == followers[0].CandidateID(); ids = b.deputies(leader) {
						time.Sleep(10 * time.Millisecond)
					}
					most := c.most
					if takeover == "waiting" && name != "stopped" {
						// The server checks once a heartbeat interval whether the client of a wait
						// is there. If it cannot tell, the wait ends, and then the lease begins.
						most += heartbeat
					}
					b.within("another is deputy", c.least, time.Since(began), most+10*time.Millisecond)
					leader.process.Kill()
					killed := time.Now()
					for !slices.ContainsFunc(followers[1:], (*candidate).IsLeader) {
						time.Sleep(100 * time.Microsecond)
					}
					b.within("the new deputy leads", 0, time.Since(killed), with.bound)
				})
			})
		}
	}
}

// deputyWithHealth starts a leader, and a deputy that is unhealthy while sick is true.
func (b *bench) deputyWithHealth() (leader, deputy *candidate, sick *atomic.Bool) {
	b.Helper()
	leader, sick = b.run("leader"), new(atomic.Bool)
	b.leads(leader)
	deputy = b.run("one", elector.WithHealth(func(context.Context) elector.HealthReport {
		if sick.Load() {
			return elector.HealthReport{Score: 0}
		}
		return elector.HealthReport{Score: 1}
	}, elector.HealthPolicy{Interval: 100 * time.Millisecond}))
	time.Sleep(time.Second)
	b.isDeputy(deputy)
	return leader, deputy, sick
}

// Metrics rely on the last event.
func TestTheLastEventOfADeputyReportsThatItIsNoDeputy(t *testing.T) {
	for name, end := range map[string]func(b *bench, leader, deputy *candidate, sick *atomic.Bool){
		"stopped":       func(_ *bench, _, deputy *candidate, _ *atomic.Bool) { deputy.stop() },
		"unhealthy":     func(_ *bench, _, _ *candidate, sick *atomic.Bool) { sick.Store(true) },
		"elected":       func(_ *bench, leader, _ *candidate, _ *atomic.Bool) { leader.stop() },
		"database away": func(b *bench, _, _ *candidate, _ *atomic.Bool) { b.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				leader, one, sick := b.deputyWithHealth()
				before := len(one.rec.Campaigns())
				end(b, leader, one, sick)
				time.Sleep(10 * time.Second)
				all := one.rec.Campaigns()
				if last := all[len(all)-1]; last.Deputy || last.Outcome == "" {
					b.Errorf("the last of %d attempts, %d of them since: %+v", len(all), len(all)-before, last)
				}
				if n := len(all) - before; n > 2 && name != "database away" { // the last interval as the deputy, and its end
					b.Errorf("%d events since: %+v", n, all[before:])
				}
			})
		})
	}
}

// A deputy that waits has prepared its release when it is elected, so that nothing is left to
// be prepared. Without an answer of the server, no deadline moves.
func TestOnlyAnAnswerProlongsATerm(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		deputy := b.run("deputy", elector.WithTakeover(elector.Wait))
		time.Sleep(time.Second)
		b.isDeputy(deputy)
		leader.stop()
		b.leads(deputy)
		synctest.Wait() // until the hooks have heard
		deputy.process.Cut(electortest.Both)
		deadline := deputy.rec.Elected()[0].Deadline
		if time.Sleep(time.Until(deadline)); deputy.IsLeader() {
			b.Errorf("it leads after %v, its deadline", deadline)
		}
	})
}

func TestAnUnhealthyCandidateIsNotTheDeputy(t *testing.T) {
	bubble(t, func(b *bench) {
		leader, one, sick := b.deputyWithHealth()
		sick.Store(true)
		time.Sleep(time.Second)
		if ids := b.deputies(leader); len(ids) > 0 || one.pool.Stats().InUse > 0 {
			b.Errorf("deputies: %v, %d connections in use", ids, one.pool.Stats().InUse)
		}
		sick.Store(false)
		time.Sleep(retry)
		b.isDeputy(one)
	})
}

// It has lost its seat, which is no failure.
func TestADeputyWhoseMachineSleptTakesItsSeatAnew(t *testing.T) {
	for name, opts := range map[string][]elector.Option{"in a session": nil, "in a transaction": {inside, elector.WithTakeover(elector.Deputy)}} {
		scene(t, name, func(b *bench) {
			leader := b.run("leader", opts...)
			b.leads(leader)
			deputy := b.run("deputy", opts...)
			time.Sleep(retry + deputyInterval/2)
			asked := b.count()
			deputy.process.ShiftClock(2 * lease)
			time.Sleep(2 * deputyInterval)
			if n := asked()["TryLock"]; opts == nil && n != 1 {
				b.Errorf("%d attempts", n)
			}
			time.Sleep(2 * retry)
			b.isDeputy(deputy)
			b.failed(deputy)
			if n := deputy.pool.Stats().InUse; opts == nil && n != 1 {
				b.Errorf("%d connections are in use", n)
			}
		})
	}
}

// A wait that has ended is followed by the next one.
func TestADeputyThatWaitsDoesNothingElse(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		b.run("deputy", elector.WithTakeover(elector.Wait))
		time.Sleep(retry)
		asked := b.count()
		time.Sleep(time.Minute)
		if counts := asked(); counts["WaitLock"] < 29 || counts["TryAsDeputy"]+counts["TryLock"] > 0 {
			b.Errorf("asked %v", counts)
		}
	})
}

// A setting of the database that no election can use is the next leader's concern.
func TestADeputyDoesNotReadTheEpochOfTokens(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		b.SetTokenEpoch("three")
		deputy := b.run("deputy", elector.WithTakeover(elector.Wait))
		time.Sleep(time.Minute)
		b.isDeputy(deputy)
		b.failed(deputy)
	})
}

func TestLeaderAndDeputyThatDieTogetherAreReplacedByTheNextAttempt(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		followers := b.follow(4)
		leader.process.Kill()
		followers[0].process.Kill()
		began := time.Now()
		for !slices.ContainsFunc(followers[1:], (*candidate).IsLeader) {
			time.Sleep(10 * time.Millisecond)
		}
		b.within("another leads", 0, time.Since(began), retry+10*time.Millisecond)
	})
}

func TestCandidatesWithEveryStandbyFollowOneLeader(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader", elector.WithTakeover(elector.Poll))
		b.leads(leader)
		polling := b.run("polling", elector.WithTakeover(elector.Poll))
		time.Sleep(2 * retry)
		if ids := b.deputies(leader); len(ids) > 0 || polling.pool.Stats().InUse > 0 {
			b.Errorf("deputies: %v; the polling one pins %d connections", ids, polling.pool.Stats().InUse)
		}
		waiting := b.run("waiting", elector.WithTakeover(elector.Wait))
		time.Sleep(2 * retry)
		b.isDeputy(waiting)
		asking := b.run("asking")
		time.Sleep(2 * retry)
		b.isDeputy(waiting)
		leader.stop()
		b.within("the waiting one leads", 0, b.leads(waiting), 10*time.Millisecond)
		time.Sleep(2 * retry)
		b.isDeputy(asking)
	})
}

// If strangers hold both seats, followers poll.
func TestElectionsGoOnWhileStrangersHoldTheSeats(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		deputy := b.run("deputy")
		time.Sleep(retry)
		deputy.process.Freeze() // a stranger, for a lease
		one := b.run("one")
		time.Sleep(retry)
		leader.process.Kill()
		b.within("it leads", 0, b.leads(one), retry+10*time.Millisecond)
	})
}

// A candidate that tries once leaves nothing in the server.
func TestTryCampaignDoesNotMakeADeputy(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.run("leader")
		b.leads(leader)
		one := b.candidate("one")
		asked := b.count()
		if _, elected, err := one.TryCampaign(context.Background()); elected || err != nil {
			b.Errorf("elected %t, %v", elected, err)
		}
		if counts := asked(); counts["TryLock"] != 1 || counts["TrialLock"] > 0 { // TrialLock follows if a seat was taken
			b.Errorf("asked %v", counts)
		}
		if ids := b.deputies(leader); len(ids) > 0 || one.pool.Stats().InUse > 0 {
			b.Errorf("deputies: %v, %d connections in use", ids, one.pool.Stats().InUse)
		}
	})
}

// A fleet of elections on one shared session.
type sharing struct {
	*candidate
	session *elector.Session
	all     []*elector.Elector
}

// share starts Run for elections of one session in a separate process.
func (b *bench) share(id string, elections int, opts ...elector.SessionOption) *sharing {
	b.Helper()
	s := &sharing{candidate: b.candidate(id)}
	var err error
	s.session, err = elector.NewSession(s.pool, append([]elector.SessionOption{elector.WithCandidateID(id)}, opts...)...)
	b.wraps(err)
	s.add(b, elections)
	b.Cleanup(func() { b.wraps(s.session.Close(context.Background())) })
	return s
}

// add starts Run for those of the first elections that the session does not have.
func (s *sharing) add(b *bench, elections int) {
	b.Helper()
	for i := range elections {
		e, err := s.session.Elector(fmt.Sprintf("election-%d", i))
		if errors.Is(err, elector.ErrConfig) {
			continue
		}
		b.wraps(err)
		s.all = append(s.all, e)
		go func() { _ = e.Run(context.Background(), nil) }()
	}
}

// fenced begins a transaction that the next leader of the election waits for, as InTx does.
func (b *bench) fenced(election string) *sql.Tx {
	b.Helper()
	pool := b.Open()
	b.Cleanup(func() { pool.Close() })
	fenced, err := pool.Begin()
	b.wraps(err)
	key := elector.KeyFromName(election)
	_, err = db.New(fenced).PairIsFree(always, db.PairIsFreeParams{High: int32(key >> 32), Low: int32(key)})
	b.wraps(err)
	return fenced
}

func (s *sharing) leads() (n int) {
	for _, e := range s.all {
		if e.IsLeader() {
			n++
		}
	}
	return n
}

// until waits until a session leads n elections, and returns how long that took.
func (b *bench) until(s *sharing, n int) time.Duration {
	b.Helper()
	began := time.Now()
	for s.leads() < n {
		if time.Since(began) > time.Hour {
			b.Fatalf("%s leads %d elections, want %d", s.CandidateID(), s.leads(), n)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

const elections = 100

func TestASessionTriesAllElectionsSoonAfterAnotherHasEnded(t *testing.T) {
	for name, c := range map[string]struct {
		opts  []elector.SessionOption
		least time.Duration
		most  time.Duration
	}{
		"the default": {nil, 0, deputyInterval + 10*time.Millisecond},
		"an interval": {[]elector.SessionOption{elector.WithDeputyInterval(20 * time.Millisecond)}, 0, 30 * time.Millisecond},
		"Poll":        {[]elector.SessionOption{elector.WithTakeover(elector.Poll)}, 0, time.Second},
	} {
		scene(t, name, func(b *bench) {
			one := b.share("one", elections)
			b.until(one, elections)
			two := b.share("two", elections, c.opts...)
			time.Sleep(1500 * time.Millisecond)
			one.process.Kill()
			b.within("all are led again", c.least, b.until(two, elections), c.most)
		})
	}
}

// Each barrier takes room in the lock table of the server, so one statement passes a thousand
// at most.
func TestASessionPassesItsBarriersAThousandAtATime(t *testing.T) {
	for n, want := range map[int]int{1000: 1, 1001: 2} {
		scene(t, fmt.Sprint(n), func(b *bench) {
			asked := b.count()
			b.until(b.share("one", n), n)
			if counts := asked(); counts["TryLocks"] != 1 || counts["Tokens"] != want {
				b.Errorf("asked %v, want one batch, and its barriers in %d statements", counts, want)
			}
		})
	}
}

// An election is led as soon as its barrier is passed. It does not wait until the session has
// looked whether it must terminate the transactions that block others.
func TestElectionsThatAreBlockedDoNotDelayTheOthersOfTheirSession(t *testing.T) {
	bubble(t, func(b *bench) {
		for i := range elections / 2 {
			defer b.fenced(fmt.Sprintf("election-%d", i)).Rollback()
		}
		passed := b.done("Tokens")
		one := b.share("one", elections)
		one.process.SetLatency(func() time.Duration { return 10 * time.Millisecond })
		<-passed
		b.within("the others are led", 0, b.until(one, elections/2), 20*time.Millisecond)
	})
}

// More winners than pass their barriers at once: those of the second statement wait for one
// statement for each election of the first that is blocked.
func TestElectionsThatAreBlockedDoNotDelayTheOthersOfALargeBatch(t *testing.T) {
	bubble(t, func(b *bench) {
		const all, blocked = 1200, 100
		for i := range blocked {
			defer b.fenced(fmt.Sprintf("election-%d", i)).Rollback()
		}
		passed := b.done("Tokens")
		one := b.share("one", all)
		one.process.SetLatency(func() time.Duration { return 10 * time.Millisecond })
		<-passed
		b.within("the others are led", 0, b.until(one, all-blocked), 60*time.Millisecond)
	})
}

// A free election of a session that also has elections at their barriers.
func TestElectionsThatAreBlockedDoNotDelayOneThatIsFree(t *testing.T) {
	bubble(t, func(b *bench) {
		const blocked = 100
		for i := range blocked {
			defer b.fenced(fmt.Sprintf("election-%d", i)).Rollback()
		}
		one := b.share("one", blocked)
		one.process.SetLatency(func() time.Duration { return 10 * time.Millisecond })
		time.Sleep(3 * time.Second)
		e, err := one.session.Elector("free")
		b.wraps(err)
		began := time.Now()
		term := b.campaign(e)
		b.within("the free one is led", 0, time.Since(began), 150*time.Millisecond)
		b.wraps(term.Resign(always))
	})
}

// It follows a session that is killed.
func TestElectionsThatAreBlockedDoNotDelayTheCloseOfTheirSession(t *testing.T) {
	bubble(t, func(b *bench) {
		const blocked = 100
		one := b.share("one", blocked+10)
		b.until(one, blocked+10)
		two := b.share("two", blocked+10)
		two.process.SetLatency(func() time.Duration { return 10 * time.Millisecond })
		time.Sleep(3 * time.Second)
		for i := range blocked { // of the leader that is killed
			defer b.fenced(fmt.Sprintf("election-%d", i)).Rollback()
		}
		one.process.Kill()
		b.until(two, 10)
		time.Sleep(time.Second)
		began := time.Now()
		b.wraps(two.session.Close(always))
		b.within("Close", 0, time.Since(began), 200*time.Millisecond)
	})
}

// Two sessions lead. If the smaller ends, the next batch finds its elections.
func TestASessionWatchesTheLargest(t *testing.T) {
	for _, first := range []string{"large", "small"} {
		scene(t, first, func(b *bench) {
			small := b.share("small", elections/10)
			b.until(small, elections/10)
			large := b.share("large", elections)
			b.until(large, elections*9/10)
			follower := b.share("follower", elections)
			time.Sleep(1500 * time.Millisecond)
			if first == "small" {
				small.process.Kill()
				began := time.Now()
				for large.leads()+follower.leads() < elections {
					time.Sleep(time.Millisecond)
				}
				b.within("those of the smaller are led again", 0, time.Since(began), time.Second)
				return
			}
			large.process.Kill()
			b.within("those of the larger are led again", 0, b.until(follower, elections*9/10), deputyInterval+10*time.Millisecond)
			time.Sleep(1500 * time.Millisecond) // now it watches the other
			small.process.Kill()
			b.within("all are led again", 0, b.until(follower, elections), deputyInterval+10*time.Millisecond)
		})
	}
}

// The session that was the largest at first may not be it for long.
func TestASessionChoosesTheLargestAgain(t *testing.T) {
	scene(t, "the first batch has one election", func(b *bench) {
		small := b.share("small", 1)
		b.until(small, 1)
		large := b.share("large", elections)
		b.until(large, elections-1)
		follower := b.share("follower", 1)
		time.Sleep(20 * time.Millisecond)
		follower.add(b, elections)
		time.Sleep(20 * time.Second)
		large.process.Kill()
		b.within("all are led again", 0, b.until(follower, elections-1), deputyInterval+10*time.Millisecond)
	})
	scene(t, "its elections are closed", func(b *bench) {
		one := b.share("one", elections)
		b.until(one, elections)
		two := b.share("two", elections)
		time.Sleep(1500 * time.Millisecond)
		for _, e := range one.all[1:] {
			b.wraps(e.Close(always))
		}
		b.until(two, elections-1)
		follower := b.share("follower", elections)
		time.Sleep(1500 * time.Millisecond) // it watches two
		one.add(b, elections)
		for _, e := range two.all {
			b.wraps(e.Close(always))
		}
		b.until(one, elections)
		time.Sleep(20 * time.Second)
		one.process.Kill()
		b.within("all are led again", 0, b.until(follower, elections), deputyInterval+10*time.Millisecond)
	})
}

// A session looks at the largest beside an election that waits at its barrier, and the other
// way round.
func TestASessionLooksAtTheLargestAndAtBarriers(t *testing.T) {
	for _, interval := range []time.Duration{deputyInterval, 10 * time.Millisecond} {
		for _, end := range []string{"the largest", "the barrier"} {
			scene(t, fmt.Sprint(end, interval), func(b *bench) {
				large := b.share("large", elections)
				b.until(large, elections)
				follower := b.share("follower", elections, elector.WithDeputyInterval(interval))
				time.Sleep(1500 * time.Millisecond)
				fenced := b.fenced("slow")
				slow, err := follower.session.Elector("slow")
				b.wraps(err)
				go func() { _ = slow.Run(always, nil) }()
				time.Sleep(300 * time.Millisecond)
				if end == "the largest" {
					large.process.Kill()
					b.within("all are led again", 0, b.until(follower, elections), interval+10*time.Millisecond)
				}
				b.wraps(fenced.Rollback())
				b.within("the barrier is passed", 0, b.leads(&candidate{Elector: slow}), 70*time.Millisecond)
			})
		}
	}
}

// A leader without a seat leaves one to a second deputy. It takes one as soon as the lock
// table has room.
func TestASuccessorTakesASeatThatTheServerRefusedAtFirst(t *testing.T) {
	for most := range 40 {
		scene(t, fmt.Sprint(most), func(b *bench) {
			leader := b.run("leader")
			b.leads(leader)
			deputy := b.run("deputy")
			time.Sleep(time.Second)
			b.isDeputy(deputy)
			successor := b.run("successor", elector.WithRetryInterval(time.Second))
			time.Sleep(time.Second)
			var sent atomic.Int32
			successor.process.SetLatency(func() time.Duration {
				if sent.Add(1) == int32(most) {
					go b.LimitLocks(1)
				}
				return time.Millisecond
			})
			term, _ := leader.Term()
			_ = term.TransferTo(always, "successor") // which may not be possible
			time.Sleep(50 * time.Millisecond)
			sent.Store(int32(most)) // or it may be limited later
			b.LimitLocks(0)
			time.Sleep(10 * time.Second)
			if ids := b.deputies(successor); len(ids) != 1 {
				b.Errorf("deputies: %v", ids)
			}
		})
	}
}

// A leader that does not share its session has no life lock to watch.
func TestASessionRarelyChecksIfThereIsNothingToWatch(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.candidate("leader")
		e, err := elector.New(leader.pool, "election-0")
		b.wraps(err)
		term := b.campaign(e)
		follower := b.share("follower", 1)
		time.Sleep(time.Second)
		asked := b.count()
		time.Sleep(time.Minute)
		counts := asked()
		if counts["LargestHolder"] > 6 || counts["PairIsFree"] > 6 {
			b.Errorf("asked %v", counts)
		}
		b.wraps(term.Resign(context.Background()))
		b.within("it leads", 0, b.until(follower, 1), time.Second)
	})
}

// An alert reports a missing deputy, unless all candidates poll.
func TestAnAttemptReportsHowItsCandidateStands(t *testing.T) {
	for name, tt := range map[string]struct {
		opts          []elector.Option
		shares        bool
		polls, inside bool
	}{
		"by default":                  {},
		"polls":                       {opts: []elector.Option{elector.WithTakeover(elector.Poll)}, polls: true},
		"waits":                       {opts: []elector.Option{elector.WithTakeover(elector.Wait)}},
		"shares a session":            {shares: true, polls: true},
		"in a transaction":            {opts: []elector.Option{inside}, polls: true, inside: true},
		"in a transaction, polls":     {opts: []elector.Option{inside, elector.WithTakeover(elector.Poll)}, polls: true, inside: true},
		"in a transaction, as deputy": {opts: []elector.Option{inside, elector.WithTakeover(elector.Deputy)}, inside: true},
	} {
		scene(t, name, func(b *bench) {
			term := b.campaign(b.candidate("leader").Elector)
			follower := b.candidate("follower", tt.opts...)
			if tt.shares {
				session, err := elector.NewSession(follower.pool, elector.WithHooks(follower.rec))
				b.wraps(err)
				defer session.Close(always)
				follower.Elector, err = session.Elector("orders")
				b.wraps(err)
			}
			follower.process.SetLatency(func() time.Duration { return 50 * time.Millisecond })
			for range 2 {
				_, elected, err := follower.TryCampaign(always)
				b.wraps(err)
				if elected {
					b.Error("elected")
				}
			}
			if now := follower.Settings(); (now.Takeover == elector.Poll) != (tt.polls && !tt.shares) || (now.Scope == elector.TransactionScope) != tt.inside {
				b.Errorf("in force: %+v", now)
			}
			for _, e := range follower.rec.Campaigns() {
				if e.Attempt != 1 || e.Outcome != hooks.Busy || e.Polls != tt.polls || e.InTransaction != tt.inside || e.Took < 100*time.Millisecond || e.Took > 5*time.Second {
					b.Errorf("%+v", e)
				}
			}
			b.wraps(term.Resign(always))
		})
	}
}

// A term that was transferred to an elector of a session has a session of its own, which alone
// keeps it: the other one must not wait for it.
func TestASessionDoesNotKeepATermThatWasTransferredToItsElector(t *testing.T) {
	bubble(t, func(b *bench) {
		term := b.campaign(b.candidate("leader", elector.WithCandidateID("leader")).Elector)
		follower := b.candidate("follower")
		session, err := elector.NewSession(follower.pool, elector.WithCandidateID("follower"), elector.WithHooks(follower.rec))
		b.wraps(err)
		e, err := session.Elector("orders")
		b.wraps(err)
		go func() { _ = e.Run(always, nil) }()
		other, err := session.Elector("other")
		b.wraps(err)
		b.campaign(other)
		time.Sleep(retry)
		b.wraps(term.TransferTo(always, "follower"))
		time.Sleep(heartbeat)
		asked, before := b.count(), len(follower.rec.Heartbeats())
		time.Sleep(time.Minute)
		if n := asked()["ValidateLocks"]; !e.IsLeader() || n < 100 || n > 122 {
			b.Errorf("leads %t; the locks of two sessions were checked %d times in a minute", e.IsLeader(), n)
		}
		if n := len(follower.rec.Heartbeats()) - before; n > 64 { // of two terms
			b.Errorf("%d heartbeats in a minute", n)
		}
		b.wraps(session.Close(always))
	})
}

func TestACheckOfTheWatchedSessionIsOneStatement(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.share("one", elections)
		b.until(one, elections)
		b.share("two", elections)
		time.Sleep(1500 * time.Millisecond)
		asked := b.count()
		time.Sleep(time.Minute)
		counts := asked()
		if n := counts["PairIsFree"]; n < 500 || n > 605 || counts["LargestHolder"] > 6 {
			b.Errorf("asked %v", counts)
		}
		if n := counts["TryLocks"]; n > 81 {
			b.Errorf("%d batches in a minute", n)
		}
	})
}

// It watches nobody if it campaigns for nothing.
func TestASessionThatFollowsNobodyAsksNothing(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.share("one", elections)
		b.until(one, elections)
		two := b.share("two", elections)
		time.Sleep(2 * retry)
		for _, e := range two.all {
			b.wraps(e.Close(always))
		}
		asked := b.count()
		time.Sleep(time.Minute)
		if counts := asked(); counts["PairIsFree"]+counts["TryLocks"]+counts["LargestHolder"] > 10 {
			b.Errorf("asked %v", counts)
		}
	})
}

// The end of the largest session costs a few batches. The other locks are busy still.
func TestTheEndOfAWatchedSessionCostsFewBatches(t *testing.T) {
	bubble(t, func(b *bench) {
		small := b.share("small", elections/10)
		b.until(small, elections/10)
		large := b.share("large", elections)
		b.until(large, elections*9/10)
		follower := b.share("follower", elections)
		time.Sleep(1500 * time.Millisecond)
		large.process.Kill()
		b.until(follower, elections*9/10)
		asked := b.count()
		time.Sleep(time.Minute)
		if n := asked()["TryLocks"]; n > 85 {
			b.Errorf("%d batches in a minute", n)
		}
	})
}

// Campaigns that begin are served at once, by a batch of their own. It does not put the others
// off.
func TestCampaignsThatBeginDoNotDelayTheOthersOfTheirSession(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.share("one", 1, elector.WithTakeover(elector.Poll))
		b.until(one, 1)
		two := b.share("two", 1, elector.WithTakeover(elector.Poll))
		other, err := two.session.Elector("other")
		b.wraps(err)
		time.Sleep(retry)
		one.process.Kill()
		for began := time.Now(); two.leads() == 0; time.Sleep(100 * time.Millisecond) {
			term, _, err := other.TryCampaign(always)
			b.wraps(err)
			b.wraps(term.Resign(always))
			if time.Since(began) > 2*time.Second {
				b.Fatal("the other is not elected")
			}
		}
	})
}

// hurrying starts an election of a session that tries once a minute unless it hurries.
func (b *bench) hurrying() (*sharing, *hookstest.Recorder) {
	b.Helper()
	rec := hookstest.NewRecorder()
	return b.share("one", 1, elector.WithRetryInterval(time.Minute), elector.WithBackoff(100*time.Millisecond, 100*time.Millisecond),
		elector.WithTakeover(elector.Poll), elector.WithHooks(rec)), rec
}

// It does so for a minute, whenever the server goes away. One that followed keeps to its retry
// interval.
func TestASessionHurriesIfItLed(t *testing.T) {
	for name, led := range map[string]bool{"led": true, "followed": false} {
		scene(t, name, func(b *bench) {
			if !led {
				b.until(b.share("leader", 1), 1)
			}
			one, rec := b.hurrying()
			time.Sleep(2 * time.Second)
			attempts := func(while time.Duration) int {
				before := len(rec.Campaigns())
				time.Sleep(while)
				return len(rec.Campaigns()) - before
			}
			for range 2 {
				b.Stop()
				if first := attempts(50 * time.Second); led && (first < 140 || first > 210) || !led && first > 3 {
					b.Errorf("%d attempts in 50 s", first)
				}
				time.Sleep(20 * time.Second) // a heartbeat has found it later
				if later := attempts(5 * time.Minute); later > 8 {
					b.Errorf("%d attempts in the minutes that follow", later)
				}
				if b.Start(); !led {
					return
				}
				b.until(one, 1)
				time.Sleep(5 * time.Minute)
			}
			b.Stop()
			time.Sleep(5 * time.Second)
			b.Start()
			b.within("it leads again", 0, b.until(one, 1), soonBack)
		})
	}
}

func TestASessionThatLedDoesNotHurryWhileAnotherLeads(t *testing.T) {
	bubble(t, func(b *bench) {
		one, rec := b.hurrying()
		b.until(one, 1)
		other := b.candidate("other")
		next, err := elector.New(other.pool, "election-0", elector.WithTakeover(elector.Wait))
		b.wraps(err)
		ctx, stop := context.WithCancel(always)
		done := make(chan error)
		go func() { done <- next.Run(ctx, nil) }()
		time.Sleep(retry)
		term, _ := one.all[0].Term()
		b.wraps(term.Resign(always))
		b.leads(&candidate{Elector: next})
		before := len(rec.Campaigns())
		time.Sleep(20 * time.Second)
		if n := len(rec.Campaigns()) - before; n > 1 {
			b.Errorf("%d attempts in 20 s", n)
		}
		stop()
		b.wraps(<-done, context.Canceled)
	})
}

// Until then it keeps the locks, of which the server knows no better. A new session would find them
// busy.
func TestASessionThatHasExpiredIsReplacedWhenItsWorkHasReturned(t *testing.T) {
	bubble(t, func(b *bench) {
		one, _ := b.hurrying()
		b.until(one, 1)
		slow, err := one.session.Elector("slow")
		b.wraps(err)
		term := b.campaign(slow)
		one.process.Cut(electortest.Both)
		<-term.Context().Done()
		one.process.Mend()
		time.AfterFunc(time.Second, func() { _ = term.Resign(always) })
		b.within("it leads again", time.Second, b.until(one, 1), 1500*time.Millisecond)
	})
}

// Each is the first of its campaign.
func TestEachTryOfASessionIsMadeAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		b.until(b.share("leader", 1), 1)
		one, _ := b.hurrying()
		b.wraps(one.all[0].Close(always))
		e, err := one.session.Elector("election-0")
		b.wraps(err)
		for range 3 {
			began := time.Now()
			_, elected, err := e.TryCampaign(always)
			if b.wraps(err); elected {
				b.Error("elected")
			}
			b.within("an answer", 0, time.Since(began), 10*time.Millisecond)
			time.Sleep(time.Second)
		}
	})
}

func TestASharedSessionThroughAPoolerSaysWhatCanBeDone(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.NewPooler(4).Open()
		defer pool.Close()
		session, err := elector.NewSession(pool)
		b.wraps(err)
		defer session.Close(always)
		e, err := session.Elector("orders")
		b.wraps(err)
		_, _, err = e.TryCampaign(always)
		if b.wraps(err, elector.ErrSessionPooled); !strings.Contains(err.Error(), "a session for each election can") {
			b.Errorf("got %v", err)
		}
	})
}
