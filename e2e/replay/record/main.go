//go:build linux

// Command record runs candidates behind proxies that write a tape, makes faults at random, and replays the tape:
//
//	go -C e2e run ./replay/record -for 20s
//
// Built with go build -overlay of a weakened library, it must reject the run.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/replay"
	"github.com/pgelector/pgelector/elector"
)

var (
	length = flag.Duration("for", 20*time.Second, "how long to run")
	driver = flag.String("driver", "", "of all candidates: pgx or postgres (lib/pq); empty: of some each")
	scope  = flag.String("scope", "", "of all locks: transaction; empty: session")
	only   = flag.String("faults", "", "make only these faults, separated by a slash")
	seed   = flag.Uint64("seed", 1, "of the faults")
	keep   = flag.String("keep", "", "keep the tape in this file")
	judge  = flag.String("judge", "", "run nothing; replay the tape in this file")
)

func main() {
	fleet.RunIfCandidate()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	try := run
	if *judge != "" {
		try = judgeTape
	}
	err := try(ctx)
	if err != nil {
		fmt.Println(err)
	}
	switch {
	case errors.Is(err, errStoodStill):
		os.Exit(inconclusive)
	case err != nil:
		os.Exit(1)
	}
}

// A run is inconclusive if it is rejected, and a plain statement once took the server so long: then the word of an end may
// travel for as long.
const (
	inconclusive = 3 // the exit status
	standsStill  = time.Second
)

var errStoodStill = errors.New("INCONCLUSIVE: the server stood still meanwhile")

// watch measures how long a plain statement takes at most, until ctx ends.
func (s *stage) watch(ctx context.Context) {
	for fleet.Pause(ctx, 50*time.Millisecond) == nil {
		began := time.Now()
		if s.server.Exec(ctx, "SELECT 1") == nil {
			s.slowest.Store(max(s.slowest.Load(), int64(time.Since(began))))
		}
	}
}

// winds is how long work goes on after its term: longer than an unlock takes, and shorter than the drain.
const winds = 100 * time.Millisecond

var seats = []fleet.Seat{
	{ID: "a", By: "pgx", Winds: winds, Draws: true},
	{ID: "b", By: "postgres", Winds: winds, Draws: true},
	{ID: "c", By: "pgx", Winds: winds, Draws: true},
	{ID: "d", By: "postgres", Winds: winds},
}

// A stage is a server, a proxy for each candidate, and the tape.
type stage struct {
	*fleet.Fleet
	server  *pgcluster.Cluster
	proxies map[string]*pgcluster.Proxy // by candidate
	tape    replay.Tape
	rnd     *rand.Rand
	slowest atomic.Int64 // of the answers to a plain statement, in nanoseconds
	faults  map[string]int
}

func run(ctx context.Context) (err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	for i := range seats {
		seats[i].By = cmp.Or(*driver, seats[i].By)
		seats[i].Prefers, seats[i].Priority = !seats[i].Session, int32(i)
		if *scope == "transaction" {
			seats[i].Scope, seats[i].Draws, seats[i].Takeover = elector.TransactionScope, false, []elector.Takeover{elector.Poll, elector.Deputy}[i%2]
		}
	}
	s := &stage{proxies: map[string]*pgcluster.Proxy{}, rnd: rand.New(rand.NewPCG(*seed, 0)), faults: map[string]int{}}
	if s.server, err = pgcluster.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.server.Stop()) }()
	if err := errors.Join(s.server.CreateRole(ctx, fleet.Role, nil), s.server.Exec(ctx, fleet.Schema)); err != nil {
		return err
	}
	s.Fleet = fleet.New(fleet.Config{Seats: seats, Seed: *seed, DSN: s.dsn, Ended: func(m *fleet.Member) { fail(m.Err()) },
		Started: func(m *fleet.Member) error {
			proxy, err := s.server.Proxy(ctx)
			if err == nil {
				proxy.Watch(func() pgcluster.Watcher { return s.tape.Watch(m.Name) })
				s.proxies[m.Name] = proxy
			}
			return err
		}})
	defer s.Abandon()
	watching, enough := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { s.watch(watching) })
	err = s.disturb(ctx)
	enough()
	watch.Wait()
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	if err := s.Dismiss(); err != nil {
		return err
	}
	err = s.check()
	if slowest := time.Duration(s.slowest.Load()); err != nil && slowest > standsStill {
		return fmt.Errorf("%w, for %v: %w", errStoodStill, slowest, err)
	}
	return err
}

func (s *stage) dsn(m *fleet.Member) string {
	return s.proxies[m.Name].DSN(pgcluster.ForRole(fleet.Role), pgcluster.WithParam("connect_timeout", "3"))
}

// check replays the run.
func (s *stage) check() error {
	candidates := s.Log.Since(0)
	events := s.tape.Events(candidates)
	if *keep != "" {
		if err := replay.Save(*keep, events); err != nil {
			return err
		}
	}
	fmt.Printf("seed %d, faults: %v\n", *seed, s.faults)
	return verdict(events)
}

// judgeTape replays a tape that was kept.
func judgeTape(context.Context) error {
	events, err := replay.Load(*judge)
	if err != nil {
		return err
	}
	return verdict(events)
}

func verdict(events []replay.Event) error {
	v := replay.Check(events, fleet.Lease)
	fmt.Print(v)
	if v.Rejected != "" {
		return errors.New("REJECTED: " + v.Rejected)
	}
	return nil
}

// disturb makes faults until the time is over.
func (s *stage) disturb(ctx context.Context) error {
	end := time.Now().Add(*length)
	for time.Now().Before(end) {
		if err := s.Fill(); err != nil {
			return err
		}
		at := history.Now()
		if _, err := s.AwaitLeader(ctx, at); err != nil {
			return err
		}
		if err := fleet.Pause(ctx, 200*time.Millisecond+time.Duration(s.rnd.Int64N(int64(time.Second)))); err != nil {
			return err
		}
		all := s.kinds()
		what := slices.Sorted(maps.Keys(all))[s.rnd.IntN(len(all))]
		m, _ := s.Leader()
		if m == nil || *only == "" && s.rnd.IntN(4) == 0 {
			m = s.Members[seats[s.rnd.IntN(len(seats))].ID]
		}
		s.faults[what]++
		if err := all[what](ctx, m); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

func (s *stage) kinds() map[string]func(context.Context, *fleet.Member) error {
	long := fleet.Lease + time.Second
	slow := func(ctx context.Context, m *fleet.Member) error { // so that transactions take long
		s.proxies[m.Name].Slow(60*time.Millisecond, 20*time.Millisecond)
		return fleet.Pause(ctx, time.Second)
	}
	all := map[string]func(context.Context, *fleet.Member) error{
		"terminate": func(ctx context.Context, _ *fleet.Member) error {
			return s.server.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", fleet.Role)
		},
		"resign": func(_ context.Context, m *fleet.Member) error { return m.Send(fleet.Resign) },
		"kill": func(_ context.Context, m *fleet.Member) error {
			s.Kill(m)
			return nil
		},
		"freeze": func(ctx context.Context, m *fleet.Member) error {
			m.Signal(syscall.SIGSTOP)
			err := fleet.Pause(ctx, long)
			s.tape.Add(replay.Event{Who: m.Name, Kind: replay.Thawed})
			m.Signal(syscall.SIGCONT)
			return err
		},
		"cut": func(ctx context.Context, m *fleet.Member) error { return s.cut(ctx, m, long) },
		"slow, then cut": func(ctx context.Context, m *fleet.Member) error {
			return errors.Join(slow(ctx, m), s.cut(ctx, m, long))
		},
		"slow, then resign": func(ctx context.Context, m *fleet.Member) error {
			defer s.proxies[m.Name].Heal()
			return errors.Join(slow(ctx, m), m.Send(fleet.Resign), fleet.Pause(ctx, time.Second))
		},
		"slow, then cut and end": func(ctx context.Context, m *fleet.Member) error { // the session, and not its transactions
			end := func() error { return s.server.Exec(ctx, endHolders, fleet.Role) }
			return errors.Join(slow(ctx, m), s.cut(ctx, m, long, end))
		},
	}
	if *only != "" {
		maps.DeleteFunc(all, func(name string, _ func(context.Context, *fleet.Member) error) bool {
			return !slices.Contains(strings.Split(*only, "/"), name)
		})
	}
	return all
}

const endHolders = `SELECT pg_terminate_backend(pid) FROM (SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' AND objsubid = 1) AS l
	JOIN pg_stat_activity USING (pid) WHERE usename = $1`

// cut holds back what passes between a candidate and the server.
func (s *stage) cut(ctx context.Context, m *fleet.Member, long time.Duration, meanwhile ...func() error) error {
	s.tape.Add(replay.Event{Who: m.Name, Kind: replay.Cut})
	s.proxies[m.Name].BlackHole()
	var err error
	for _, do := range meanwhile {
		err = errors.Join(err, do())
	}
	err = errors.Join(err, fleet.Pause(ctx, long))
	s.proxies[m.Name].Heal()
	s.tape.Add(replay.Event{Who: m.Name, Kind: replay.Mended})
	return err
}
