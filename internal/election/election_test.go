package election_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var seeds = flag.Uint64("seeds", 40, "how many runs each test with random faults makes")

type quiet struct{}

func (quiet) Attempted(election.Attempt)    {}
func (quiet) Elected(*election.Term)        {}
func (quiet) Ended(*election.Term, error)   {}
func (quiet) Released(*election.Term)       {}
func (quiet) Demoted(*election.Term, error) {}
func (quiet) Failed(string, error)          {}

// sessions is what the sessions of a candidate are like: a term lasts 7 s without a heartbeat.
func sessions(id string) election.SessionConfig {
	return election.SessionConfig{CandidateID: id, Lease: lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: 2 * time.Second}}
}

func config(key int64) election.Config {
	return election.Config{Key: key, Retry: every(time.Second), Backoff: backoff.Backoff{Min: time.Second, Max: 5 * time.Second}, Observer: quiet{}}
}

func plain(pool *sql.DB, id string) *election.Election {
	return election.New(election.NewSource(pool, sessions(id)), config(42))
}

// onServer calls test in virtual time with a server in memory and a pool.
func onServer(t *testing.T, test func(t *testing.T, server *electortest.Server, process *electortest.Process, pool *sql.DB)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		process := server.NewProcess()
		pool := process.Open()
		defer pool.Close()
		test(t, server, process, pool)
	})
}

// A watch records who believes that it leads.
type watch struct {
	mu     sync.Mutex
	leads  map[string]int64
	terms  int
	token  int64
	faults []string
}

func (w *watch) lead(id string) func(context.Context, *election.Term) error {
	return func(ctx context.Context, t *election.Term) error {
		w.mu.Lock()
		if len(w.leads) > 0 {
			w.faults = append(w.faults, fmt.Sprintf("%s leads beside %v", id, w.leads))
		}
		if t.Token() <= w.token {
			w.faults = append(w.faults, fmt.Sprintf("token %d after %d", t.Token(), w.token))
		}
		w.leads[id], w.token = t.Token(), t.Token()
		w.terms++
		w.mu.Unlock()
		<-ctx.Done()
		w.mu.Lock()
		delete(w.leads, id)
		w.mu.Unlock()
		return ctx.Err()
	}
}

// now returns how many lead.
func (w *watch) now() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.leads)
}

func TestTheOtherLeadsWhenTheFirstIsStopped(t *testing.T) {
	onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, _ *sql.DB) {
		w := &watch{leads: map[string]int64{}}
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		first, stop := context.WithCancel(ctx)
		for i, c := range []context.Context{first, ctx} {
			pool := server.NewProcess().Open()
			defer pool.Close()
			id := fmt.Sprint("c", i)
			all.Go(func() { canceled(t, plain(pool, id).Run(c, w.lead(id))) })
			time.Sleep(3 * time.Second)
		}
		time.Sleep(10 * time.Second)
		stop()
		time.Sleep(3 * time.Second)
		w.mu.Lock()
		if w.terms != 2 || w.leads["c1"] == 0 || len(w.faults) > 0 {
			t.Error(w.terms, w.leads, w.faults)
		}
		w.mu.Unlock()
		cancel()
		all.Wait()
		synctest.Wait() // a connection is closed beside
		if n := len(server.Locks()); n != 0 {
			t.Error(n, "locks are left")
		}
	})
}

// faults is a run of three candidates, with random faults.
func faults(t *testing.T, stream uint64, candidate func(*sql.DB, string) *election.Election, fault func(draw *rand.Rand, server *electortest.Server, p *electortest.Process, pause time.Duration), beside bool) {
	terms := 0
	for seed := range *seeds {
		synctest.Test(t, func(t *testing.T) {
			draw := rand.New(rand.NewPCG(seed, stream))
			server := electortest.NewServer()
			defer server.Close()
			w := &watch{leads: map[string]int64{}}
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			var processes []*electortest.Process
			for i := range 3 {
				p := server.NewProcess()
				processes = append(processes, p)
				pool := p.Open()
				defer pool.Close()
				id := fmt.Sprint("c", i)
				all.Go(func() { canceled(t, candidate(pool, id).Run(ctx, w.lead(id))) })
			}
			for range 12 {
				time.Sleep(time.Duration(draw.Int64N(int64(8 * time.Second))))
				fault(draw, server, processes[draw.IntN(3)], time.Duration(draw.Int64N(int64(25*time.Second))))
			}
			time.Sleep(15 * time.Second) // nobody leads by a lease from before
			for range 45 {               // a part that does its worst may just have ended a term
				if w.now() == 1 {
					break
				}
				time.Sleep(time.Second)
			}
			w.mu.Lock()
			if len(w.leads) != 1 {
				t.Errorf("seed %d: a minute after the last fault these lead: %v", seed, w.leads)
			}
			for _, f := range w.faults {
				if !beside || strings.HasPrefix(f, "token") {
					t.Errorf("seed %d: %s", seed, f)
				}
			}
			terms += w.terms
			w.mu.Unlock()
			cancel()
			all.Wait()
		})
	}
	t.Log(terms, "terms")
}

// The server ends sessions here, and frees the lock before the leader hears of it: the part that listens on the connection
// shortens that time. Tokens rise nevertheless, and somebody leads in the end.
func TestTokensRiseWhateverEndsASession(t *testing.T) {
	faults(t, 1, plain, func(draw *rand.Rand, server *electortest.Server, p *electortest.Process, pause time.Duration) {
		switch draw.IntN(4) {
		case 0:
			for _, l := range server.Locks() {
				server.Terminate(l.PID)
			}
		case 1:
			p.Cut(electortest.Loss(draw.IntN(3)))
			time.Sleep(pause)
			p.Mend()
		case 2:
			server.Crash()
			time.Sleep(pause / 4)
			server.Start()
		case 3:
			server.Stall()
			time.Sleep(pause)
			server.Resume()
		}
	}, true)
}

// No fault here has the server end a session that is heard: then nobody leads beside another.
func TestNoTwoLeadWhileSilent(t *testing.T) {
	faults(t, 2, plain, func(draw *rand.Rand, server *electortest.Server, p *electortest.Process, pause time.Duration) {
		if draw.IntN(2) == 0 {
			p.Cut(electortest.Loss(draw.IntN(3)))
			time.Sleep(pause)
			p.Mend()
			return
		}
		p.SetLatency(func() time.Duration { return pause / 4 })
		time.Sleep(pause)
		p.SetLatency(func() time.Duration { return 0 })
	}, false)
}

func canceled(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, context.Canceled) {
		t.Error("Run has returned", err)
	}
}

func every(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
