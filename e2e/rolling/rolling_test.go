// Package rolling counts how often leadership moves in a rolling update, in virtual time, on the server in memory of package
// electortest. The table of docs/operating.md has what
//
//	go -C e2e test ./rolling -count=1 -v -updates=20
//
// prints.
package rolling

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks/hookstest"
	"github.com/pgelector/pgelector/internal/backoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var updates = flag.Int("updates", 0, "how many updates for each row of the table; 0: one, of the pace and with the priorities that a promise is about")

const (
	replicas = 5
	settled  = 3 * time.Minute // after which nothing moves any more
)

// A replica is a process with one candidate.
type replica struct {
	stop context.CancelFunc
	done chan struct{}
}

// An update is a Deployment during one rolling update.
type update struct {
	server  *electortest.Server
	rec     *hookstest.Recorder
	prefers bool
	all     [replicas]replica
}

// start starts the replica of that number, of a version.
func (u *update) start(t *testing.T, n int, version int32) {
	pool := u.server.NewProcess().Open()
	opts := []elector.Option{elector.WithCandidateID(fmt.Sprintf("web-%d.%d", n, version)), elector.WithHooks(u.rec)}
	if u.prefers {
		opts = append(opts, elector.WithPriority(version))
	}
	e, err := elector.New(pool, "orders", opts...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := replica{stop, make(chan struct{})}
	go func() {
		defer close(r.done)
		_ = e.Run(ctx, nil)
		_ = pool.Close()
	}()
	u.all[n] = r
}

// end ends a replica as TERM does: its Run ends, and releases the lock if it leads.
func (r replica) end() {
	r.stop()
	<-r.done
}

// moves counts how often somebody is elected in an update that replaces one replica after the other, in a random order. pace is the
// time from one TERM to the next. The new process campaigns one to three seconds after the old one has ended.
func moves(t *testing.T, seed uint64, pace time.Duration, prefers bool) (n int) {
	r := rand.New(rand.NewPCG(seed, uint64(pace)))
	synctest.Test(t, func(t *testing.T) {
		u := &update{server: electortest.NewServer(), rec: hookstest.NewRecorder(), prefers: prefers}
		defer u.server.Close()
		for i := range replicas {
			u.start(t, i, 1)
			time.Sleep(time.Second + time.Duration(r.Int64N(int64(time.Second))))
		}
		time.Sleep(settled)
		before := len(u.rec.Elected())
		for _, i := range r.Perm(replicas) {
			u.all[i].end()
			starting := time.Second + time.Duration(r.Int64N(int64(2*time.Second)))
			time.Sleep(starting)
			u.start(t, i, 2)
			time.Sleep(pace - starting)
		}
		time.Sleep(settled)
		n = len(u.rec.Elected()) - before
		for _, r := range u.all {
			r.end()
		}
	})
	return n
}

// With a pace longer than the minute for which a leader keeps its term, and the ten seconds for which its successor has been up,
// leadership moves at most twice.
func TestARollingUpdateWithPrioritiesMovesLeadershipAtMostTwice(t *testing.T) {
	var mu sync.Mutex
	draws := rand.New(rand.NewPCG(1, 2))
	backoff.DrawFrom(func(d time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(draws.Int64N(int64(d)))
	})
	defer backoff.DrawFrom(rand.N[time.Duration])
	paces, modes, n := []time.Duration{75 * time.Second, 30 * time.Second, 15 * time.Second, 5 * time.Second}, []bool{false, true}, *updates
	if n == 0 {
		paces, modes, n = paces[:1], modes[1:], 1
	}
	for _, pace := range paces {
		row := fmt.Sprintf("| %v |", pace)
		for _, prefers := range modes {
			counts, sum, most := [replicas + 1]int{}, 0, 0
			for seed := range uint64(n) {
				n := moves(t, seed, pace, prefers)
				counts[min(n, replicas)]++
				sum, most = sum+n, max(most, n)
				if prefers && pace > time.Minute && n > 2 {
					t.Errorf("update %d: leadership has moved %d times", seed, n)
				}
			}
			row += fmt.Sprintf(" %.2f, at most %d |", float64(sum)/float64(n), most)
			t.Logf("pace %v, with priorities %t: how many updates moved leadership 0, 1, 2, … times: %v", pace, prefers, counts)
		}
		t.Log(row)
	}
}
