package election_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/idle"
	"github.com/pgelector/pgelector/internal/pgerr"
)

// opened leaves n idle connections in the pool.
func opened(t *testing.T, pool *sql.DB, n int) {
	t.Helper()
	pool.SetMaxIdleConns(n)
	conns := make([]*sql.Conn, n)
	for i := range conns {
		var err error
		if conns[i], err = pool.Conn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range conns {
		_ = c.Close()
	}
	if got := pool.Stats().Idle; got != n {
		t.Fatal(got, "connections are idle, want", n)
	}
}

// However many idle connections are silent, as after a host died, an election takes the time of one, while new ones work.
func TestSilentIdleConnectionsCostTheTimeOfOne(t *testing.T) {
	for driver, d := range map[string]electortest.Driver{"pgx": electortest.PGX, "pq": electortest.PQ} {
		for _, n := range []int{1, 2, 5, 10} {
			for _, full := range []bool{false, true} {
				if full && driver == "pq" { // blocks in Close, too: only the end of its calls makes room
					continue
				}
				t.Run(fmt.Sprintf("%s, %d, full %v", driver, n, full), func(t *testing.T) {
					onServer(t, func(t *testing.T, server *electortest.Server, process *electortest.Process, pool *sql.DB) {
						process.SetDriver(d)
						opened(t, pool, n)
						if full {
							pool.SetMaxOpenConns(n)
						}
						server.LosePower()
						server.Start()
						from := sessions("a")
						var reports []error
						from.Report = func(_ string, err error) { reports = append(reports, err) }
						began := time.Now()
						if err := election.New(election.NewSource(pool, from), config(42)).Run(t.Context(), func(context.Context, *election.Term) error {
							if took := time.Since(began); took > 8*time.Second { // a validity of 7 s, and 1 s
								t.Error("elected after", took)
							}
							return nil
						}); err != nil {
							t.Error(err)
						}
						if len(reports) == 0 || !errors.Is(reports[0], pgerr.ErrNoAnswer) {
							t.Error(reports)
						}
						server.Reset()
						time.Sleep(time.Minute) // for the drivers to return
					})
				})
			}
		}
	}
}

// Idle connections to a standby cost nothing, if new ones lead to the primary.
func TestIdleConnectionsToAStandbyCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		primary := electortest.NewServer()
		defer primary.Close()
		standby := primary.NewStandby(0)
		defer standby.Close()
		process := standby.NewProcess()
		pool := process.Open()
		defer pool.Close()
		opened(t, pool, 5)
		process.ConnectTo(primary)
		began := time.Now()
		c := config(42)
		c.AwaitPrimary = time.Minute
		if err := election.New(election.NewSource(pool, sessions("a")), c).Run(t.Context(), func(context.Context, *election.Term) error {
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Error("elected after", took)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		if left := pool.Stats().Idle; left != 0 { // as the last one was closed with its session
			t.Error(left, "connections to the standby are left")
		}
	})
}

// Several candidates of one pool take its connections once, and other users of the pool find the connections that live.
func TestOneAttemptOfAPoolTakesItsIdleConnections(t *testing.T) {
	onServer(t, func(t *testing.T, server *electortest.Server, _ *electortest.Process, pool *sql.DB) {
		opened(t, pool, 5)
		server.LosePower()
		server.Start()
		began := time.Now()
		var all sync.WaitGroup
		for key := range int64(3) {
			all.Go(func() {
				if err := election.New(election.NewSource(pool, sessions("a")), config(key)).Run(t.Context(), func(context.Context, *election.Term) error {
					if took := time.Since(began); took > 8*time.Second {
						t.Error("elected after", took)
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := server.Connections(); n > 6 {
			t.Error(n, "connections are open")
		}
		server.Reset()
		time.Sleep(time.Minute)
	})
}

// A suspicion that is unfounded changes nothing for others: connections that live go back.
func TestConnectionsThatLiveGoBack(t *testing.T) {
	onServer(t, func(t *testing.T, _ *electortest.Server, process *electortest.Process, pool *sql.DB) {
		opened(t, pool, 5)
		process.SetLatency(func() time.Duration { return time.Millisecond })
		idle.Suspect(pool)
		conn, _, err := idle.Take(t.Context(), pool, time.Second, time.Second, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if s := pool.Stats(); s.InUse != 1 || s.Idle < 4 {
			t.Errorf("%+v", s)
		}
		conn.GiveBack()
	})
}
