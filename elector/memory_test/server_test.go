package memory_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
)

func TestALeaderWhoseBackendIsTerminatedLearnsIt(t *testing.T) {
	for name, c := range map[string]struct {
		driver electortest.Driver
		most   time.Duration
	}{
		"at once, with pgx":          {electortest.PGX, 0},
		"within 250 ms, with lib/pq": {electortest.PQ, 250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				one := b.candidate("one")
				one.process.SetDriver(c.driver)
				b.leads(b.start(one))
				if listens := one.Settings().ListensForLoss; listens != (c.driver == electortest.PGX) {
					b.Errorf("it listens: %t", listens)
				}
				term, _ := one.Term()
				time.Sleep(100 * time.Millisecond)
				if !b.Terminate(b.pid(one)) || b.Terminate(1) {
					b.Error("terminated another")
				}
				start := time.Now()
				<-term.Context().Done()
				b.within("it learns it", 0, time.Since(start), c.most)
				b.wraps(context.Cause(term.Context()), elector.ErrSessionLost)
			})
		})
	}
}

// The other session's next heartbeat is due in half a minute, and no other statement.
func TestALossThatOneSessionHearsHasTheOthersOfThePoolAskAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		rarely := []elector.Option{longLease, elector.WithValidateInterval(0)}
		one := b.run("one", rarely...)
		b.leads(one)
		other, err := elector.New(one.pool, "bills", rarely...)
		b.check(err)
		term := b.campaign(other)
		defer func() { b.wraps(term.Resign(always)) }()
		time.Sleep(10 * time.Second)
		heartbeat := b.done("Ping")
		lost := time.Now()
		b.Terminate(b.pid(one))
		<-heartbeat
		b.within("the other session asks", 0, time.Since(lost), time.Millisecond)
		b.check(term.Verify(b.Context()))
	})
}

// Another statement puts the next heartbeat off, and must not put the next look off with it.
func TestALossIsLookedForEachQuarterSecondAlsoBesideOtherStatements(t *testing.T) {
	for after := time.Duration(0); after < 2*time.Second; after += 10 * time.Millisecond {
		bubble(t, func(b *bench) {
			one := b.candidate("one", elector.WithLease(3*time.Second))
			one.process.SetDriver(electortest.PQ)
			b.leads(b.start(one))
			term, _ := one.Term()
			time.Sleep(after)
			b.check(term.Verify(b.Context()))
			time.Sleep(time.Millisecond)
			b.Terminate(b.pid(one))
			start := time.Now()
			<-term.Context().Done()
			b.within("it learns it after "+after.String(), 0, time.Since(start), 250*time.Millisecond)
		})
	}
}

func TestTokensRiseAcrossACrashAlsoWhenItForgets(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one")
		last := int64(0)
		for range 5 {
			b.leads(one)
			term, _ := one.Term()
			if term.Token() <= last {
				b.Errorf("token %d after %d", term.Token(), last)
			}
			last = term.Token()
			b.Crash()
			time.Sleep(3 * time.Second)
			if one.IsLeader() {
				b.Error("it leads without a server")
			}
			b.Start()
		}
	})
}

func TestAStallShorterThanTheValidityCostsNoLeadership(t *testing.T) {
	for stall, survives := range map[time.Duration]bool{4 * time.Second: true, 8 * time.Second: false} {
		bubble(t, func(b *bench) {
			one := b.run("one")
			b.leads(one)
			term, _ := one.Term()
			b.Stall()
			time.Sleep(stall)
			b.Resume()
			time.Sleep(time.Minute)
			if term.Valid() != survives {
				b.Errorf("after a stall of %v: valid %v", stall, term.Valid())
			}
			b.leads(one)
		})
	}
}

func TestAServerWithoutRoomSaysSo(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		b.LimitLocks(1)
		_, _, err := one.TryCampaign(context.Background())
		b.wraps(err, elector.ErrLockTableFull) // the lock has room, its guard has not
		b.LimitLocks(0)
		b.LimitConnections(b.Connections())
		_, err = one.pool.Conn(context.Background())
		for range 3 { // those that are idle
			if err == nil {
				_, err = one.pool.Conn(context.Background())
			}
		}
		if state(err) != "53300" {
			b.Errorf("got %v", err)
		}
	})
}

func TestAPoolerIsRefusedInSessionScope(t *testing.T) {
	for _, size := range []int{0, 1, 2} {
		bubble(t, func(b *bench) {
			pool := b.NewPooler(size).Open()
			defer pool.Close()
			e, err := elector.New(pool, "orders", elector.WithMaxAttempts(3), elector.WithScope(elector.SessionScope))
			b.check(err)
			_, err = e.Campaign(context.Background())
			if size == 2 {
				b.wraps(err, elector.ErrSessionPooled)
			} else if err == nil { // b waits for ever for the only backend
				b.Error("it was elected")
			}
			synctest.Wait()
			if n := len(b.Locks()); n != 0 {
				b.Errorf("locks are left on a shared backend: %+v", b.Locks())
			}
		})
	}
}

func TestAFastServerClockEndsSessionsSooner(t *testing.T) {
	for rate, want := range map[float64]time.Duration{1: lease, 2: lease / 2, -1: lease} {
		bubble(t, func(b *bench) {
			b.SetClockRate(rate)
			conn, err := b.candidate("one").pool.Conn(context.Background())
			b.check(err)
			defer conn.Close()
			settings := db.ApplySettingsParams{Settings: `[{"name":"idle_session_timeout","value":"10000"}]`}
			_, err = db.New(conn).ApplySettings(context.Background(), settings)
			b.check(err)
			start := time.Now()
			for b.Connections() > 0 {
				time.Sleep(time.Millisecond)
			}
			b.within("the session ends", want, time.Since(start), want+time.Millisecond)
		})
	}
}

func TestASlowDiskDelaysTheElectionAndNotTheHeartbeat(t *testing.T) {
	bubble(t, func(b *bench) {
		b.SetFlush(3 * time.Second)
		one := b.run("one")
		b.within("it leads", 3*time.Second, b.leads(one), 3*time.Second+10*time.Millisecond)
		time.Sleep(time.Minute)
		if d := one.rec.Demoted(); len(d) != 0 {
			b.Errorf("demoted: %+v", d)
		}
	})
}

// A leader sends a heartbeat each interval, and checks its locks in pg_locks once a second, unless
// the heartbeat itself proves that it has them. For the first transaction of a term, the session
// asks when its backend began. Inside a transaction, it asks each time whether that goes on.
func TestWhatALeaderSends(t *testing.T) {
	for name, c := range map[string]struct {
		opts []elector.Option
		want map[string]int
	}{
		"in a session":     {nil, map[string]int{"Ping": 20, "ValidateLocks": int(20 * heartbeat / time.Second), "TryPair": 1}},
		"in a transaction": {[]elector.Option{inside}, map[string]int{"PingTransaction": 20}},
	} {
		scene(t, name, func(b *bench) {
			one := b.candidate("one", c.opts...)
			term := b.campaign(one.Elector)
			leader := b.pid(one)
			sent := map[string]int{}
			b.Trace(func(e electortest.Event) {
				if e.PID == leader && e.Done {
					sent[e.What]++
				}
			})
			for range 20 {
				b.wraps(term.InTx(always, one.pool, nil, func(*sql.Tx) error { return nil }))
				time.Sleep(heartbeat)
			}
			time.Sleep(heartbeat / 4) // to an instant at which nothing is due: a look at the locks is, each half
			b.Trace(nil)
			if !maps.Equal(sent, c.want) {
				b.Errorf("sent %v, want %v", sent, c.want)
			}
			b.wraps(term.Resign(always))
		})
	}
}

func TestAStatementOfTheProgramIsAnsweredByItsHandler(t *testing.T) {
	bubble(t, func(b *bench) {
		pool := b.candidate("one").pool
		_, err := pool.Exec("INSERT INTO orders VALUES ($1)", 1)
		if state(err) != "0A000" || !strings.Contains(err.Error(), "Server.Handle") || !strings.Contains(err.Error(), "INSERT INTO orders") {
			b.Errorf("without a handler: %v", err)
		}
		committed := 0
		b.Handle(func(s electortest.Statement) (electortest.Answer, error) {
			switch s.SQL {
			case "fail":
				return electortest.Answer{}, errors.New("as told")
			case "insert":
				s.OnCommit(func() { committed++ })
				return electortest.Answer{Affected: 2}, nil
			}
			return electortest.Answer{Columns: []string{"a", "b"}, Rows: [][]any{{s.Args[0], "text"}}}, nil
		})
		var n int64
		var text string
		if err := pool.QueryRow("select", 7).Scan(&n, &text); err != nil || n != 7 || text != "text" {
			b.Errorf("got %d, %q, %v", n, text, err)
		}
		result, err := pool.Exec("insert")
		if affected, _ := result.RowsAffected(); err != nil || affected != 2 || committed != 1 {
			b.Errorf("affected %d, committed %d, %v", affected, committed, err)
		}
		inTx(b, pool, "insert", (*sql.Tx).Rollback)
		if committed != 1 {
			b.Error("what was rolled back was committed")
		}
		inTx(b, pool, "insert", (*sql.Tx).Commit)
		if committed != 2 {
			b.Error("what was committed was not")
		}
		if _, err := pool.Exec("fail"); err == nil || err.Error() != "as told" {
			b.Errorf("got %v", err)
		}
	})
}

func inTx(b *bench, pool *sql.DB, statement string, end func(*sql.Tx) error) {
	b.Helper()
	tx, err := pool.Begin()
	b.check(err)
	if _, err := tx.Exec(statement); err != nil {
		b.Error(err)
	}
	if err := end(tx); err != nil {
		b.Error(err)
	}
}

func TestAStatementOfAnotherVersionIsNotMistaken(t *testing.T) {
	bubble(t, func(b *bench) {
		_, err := b.candidate("one").pool.Exec(db.Ping + " ")
		if state(err) != "0A000" || !strings.Contains(err.Error(), "no handler for statements other than pgelector's") {
			b.Errorf("got %v", err)
		}
	})
}

func TestATraceTellsEverythingInOrder(t *testing.T) {
	bubble(t, func(b *bench) {
		var all []string
		b.Trace(func(e electortest.Event) {
			if e.What == "TryLock" || e.Application == "one" && e.What != "ApplySettings" {
				if e.Done {
					e.What += " done"
				}
				all = append(all, e.What)
			}
		})
		one := b.candidate("one")
		term, err := one.Campaign(context.Background())
		b.check(err)
		if err := term.Resign(context.Background()); err != nil {
			b.Error(err)
		}
		want := "TryLock, TryLock done, Confirm, Confirm done, Unlock, Unlock done, ended done"
		time.Sleep(time.Second)
		b.Trace(nil)
		if got := strings.Join(all, ", "); got != want {
			b.Errorf("got  %s\nwant %s", got, want)
		}
		if d := one.rec.Demoted(); len(d) != 1 || d[0].Reason != hooks.Resigned {
			b.Errorf("demoted %+v", d)
		}
	})
}

// A process may follow for years, and lead ten thousand times.
func TestAttemptsAndTermsLeaveNothingBehind(t *testing.T) {
	failed := errors.New("failed")
	resigns := func(b *bench, p process) { b.wraps(p.leads(b).Resign(context.Background())) }
	for name, once := range map[string]func(b *bench, p process){
		"attempts":                  func(b *bench, p process) { time.Sleep(10 * time.Millisecond) },
		"terms":                     resigns,
		"terms of a shared session": resigns,
		"functions": func(b *bench, p process) {
			if ran, err := p.RunIfLeader(p.ctx, func(context.Context) error { return nil }); !ran || err != nil {
				b.Errorf("ran %v, %v", ran, err)
			}
		},
		"transactions": func(b *bench, p process) {
			b.wraps(p.leads(b).InTx(p.ctx, p.pool, nil, func(*sql.Tx) error { return nil }))
		},
		"transactions that fail": func(b *bench, p process) {
			b.wraps(p.leads(b).InTx(p.ctx, p.pool, nil, func(*sql.Tx) error { return failed }), failed)
		},
		"transactions that are refused": func(b *bench, p process) {
			b.wraps(p.leads(b).InTx(p.ctx, p.elsewhere, nil, func(*sql.Tx) error { return nil }), elector.ErrRolledBack)
		},
		"transactions on a pool that is closed": func(b *bench, p process) {
			closed := b.Open()
			b.wraps(closed.Close())
			b.wraps(p.leads(b).InTx(p.ctx, closed, nil, func(*sql.Tx) error { return nil }), elector.ErrRolledBack)
		},
		"calls of Run and TryRun": func(b *bench, p process) {
			lead := func(context.Context, *elector.Term) error { return nil }
			b.wraps(p.idle.Run(p.ctx, lead))
			_, err := p.idle.TryRun(p.ctx, lead)
			b.wraps(err)
		},
		"calls of Campaign and TryCampaign": func(b *bench, p process) {
			term, err := p.idle.Campaign(p.ctx)
			b.wraps(err)
			b.wraps(term.Resign(always))
			term, _, err = p.idle.TryCampaign(p.ctx)
			b.wraps(err)
			b.wraps(term.Resign(always))
		},
		"calls of Start": func(b *bench, p process) {
			b.wraps(p.idle.Start(p.ctx))
			b.wraps(p.idle.Stop(always))
		},
		"transactions that do not begin": func(b *bench, p process) {
			ended, cancel := context.WithCancel(p.ctx)
			cancel()
			b.wraps(p.leads(b).InTx(ended, p.pool, nil, func(*sql.Tx) error { return nil }), context.Canceled)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				pool := b.Open()
				defer pool.Close()
				other := electortest.NewServer()
				defer other.Close()
				elsewhere := other.Open()
				defer elsewhere.Close()
				ctx, stop := context.WithCancel(context.Background()) // as long as the process lives
				defer stop()
				if name == "attempts" {
					other := b.run("other")
					b.leads(other)
				}
				session, err := elector.NewSession(pool, elector.WithRetryInterval(10*time.Millisecond))
				b.wraps(err)
				fit := elector.WithHealth(func(context.Context) elector.HealthReport { return elector.HealthReport{Score: 1} }, elector.HealthPolicy{Interval: time.Hour})
				e, err := elector.New(pool, "orders", fit, elector.WithRetryInterval(10*time.Millisecond))
				if name == "terms of a shared session" {
					e, err = session.Elector("orders", fit)
				}
				b.wraps(err)
				b.wraps(e.Start(ctx))
				idle, err := elector.New(pool, "idle")
				b.wraps(err)
				time.Sleep(time.Second)
				grown := func(n int) int64 {
					before := heap()
					for range n {
						once(b, process{e, pool, elsewhere, idle, ctx})
						synctest.Wait() // a slow machine must not run more and more goroutines
					}
					time.Sleep(time.Second) // until everything under way has ended
					return heap() - before
				}
				n, noise := 2000, int64(50_000)
				if testing.Short() || strings.HasPrefix(name, "calls") { // each call checks the server
					n = 400
				}
				grown(n / 6)
				if grew := grown(n); grew > noise {
					b.Errorf("%d %s have left %d bytes", n, name, grew)
				}
				b.wraps(e.Stop(context.Background()))
				b.wraps(session.Close(context.Background()))
			})
		})
	}
}

type process struct {
	*elector.Elector
	pool, elsewhere *sql.DB          // on the election's server and on another
	idle            *elector.Elector // which the test may use
	ctx             context.Context
}

// leads waits for its term.
func (p process) leads(b *bench) *elector.Term {
	for !p.IsLeader() {
		time.Sleep(time.Millisecond)
	}
	term, _ := p.Term()
	return term
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The context of an attempt ends while the server is checked. The next attempt checks it.
func TestACheckThatIsCutShortIsMadeAgain(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.candidate("one")
		one.process.SetLatency(func() time.Duration { return time.Second })
		ctx, stop := context.WithTimeout(always, 5*time.Second)
		defer stop()
		_, _, err := one.TryCampaign(ctx)
		b.wraps(err, context.DeadlineExceeded)
		one.process.SetLatency(nil)
		asked := b.count()
		b.wraps(b.campaign(one.Elector).Resign(always))
		if asked()["DescribeServer"] == 0 {
			b.Error("the server was not checked")
		}
		b.Trace(nil)
	})
}

// A heartbeat waits for no more calls than are under way when it is due.
func TestHeartbeatsAreSentWhileOthersVerifyOnASlowLink(t *testing.T) {
	bubble(t, func(b *bench) {
		const trip = 490 * time.Millisecond
		one := b.candidate("one")
		term := b.campaign(one.Elector)
		one.process.SetLatency(func() time.Duration { return trip/2*95/100 + rand.N(trip/20) })
		ctx, stop := context.WithCancel(always)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for ctx.Err() == nil {
					_ = term.Verify(ctx)
				}
			})
		}
		time.Sleep(5 * time.Minute)
		stop()
		all.Wait()
		one.process.SetLatency(nil)
		beats := one.rec.Heartbeats()
		for i := range beats[1:] {
			b.within("the next heartbeat", 0, beats[i+1].At.Sub(beats[i].At), 2*heartbeat+5*trip)
		}
		b.wraps(term.Resign(always))
	})
}
