package electortest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

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
	for i := range elections {
		e, err := s.session.Elector(fmt.Sprintf("election-%d", i))
		b.wraps(err)
		s.all = append(s.all, e)
		go func() { _ = e.Run(context.Background(), nil) }()
	}
	b.Cleanup(func() { b.wraps(s.session.Close(context.Background())) })
	return s
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
		"Poll":        {[]elector.SessionOption{elector.WithStandby(elector.Poll)}, 0, time.Second},
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

// Two sessions lead. If the smaller ends, the next batch finds its elections.
func TestASessionWatchesTheLargest(t *testing.T) {
	bubble(t, func(b *bench) {
		small := b.share("small", elections/10)
		b.until(small, elections/10)
		large := b.share("large", elections)
		b.until(large, elections*9/10)
		follower := b.share("follower", elections)
		time.Sleep(1500 * time.Millisecond)
		large.process.Kill()
		b.within("those of the larger are led again", 0, b.until(follower, elections*9/10), deputyInterval+10*time.Millisecond)
		time.Sleep(1500 * time.Millisecond) // now it watches the other
		small.process.Kill()
		b.within("all are led again", 0, b.until(follower, elections), deputyInterval+10*time.Millisecond)
	})
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

// Otherwise an alert would report a missing deputy.
func TestElectorsOfASessionReportThatTheyPoll(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.share("leader", 1)
		b.until(leader, 1)
		follower := b.candidate("follower")
		session, err := elector.NewSession(follower.pool, elector.WithHooks(follower.rec))
		b.wraps(err)
		e, err := session.Elector("election-0")
		b.wraps(err)
		_, elected, err := e.TryCampaign(context.Background())
		b.wraps(err)
		if all := follower.rec.Campaigns(); elected || len(all) != 1 || !all[0].Polls || all[0].Deputy {
			b.Errorf("elected %t: %+v", elected, all)
		}
		b.wraps(session.Close(context.Background()))
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
		if n := counts["PairIsFree"]; n < 500 || n > 605 || counts["LargestHolder"] > 0 {
			b.Errorf("asked %v", counts)
		}
		if n := counts["TryLocks"]; n > 81 {
			b.Errorf("%d batches in a minute", n)
		}
	})
}
