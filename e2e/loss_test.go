//go:build unix

package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// unbeaten are the options of a leader whose first heartbeat is due when these tests have long
// failed. What it notices before, it was told, or has looked for.
var unbeaten = []elector.Option{elector.WithLease(8 * time.Minute), elector.WithHeartbeatInterval(patience + patience/2),
	elector.WithValidateInterval(0), elector.WithRetryInterval(retry)}

// listens reports whether the driver's connections can be waited on.
func (d drivers) listens() bool { return d.name(0) == "pgx" }

// leads waits until the candidate leads, and checks that it listens for its loss if it should.
func (c *candidate) leads(t *testing.T, listens bool) hooks.Elected {
	t.Helper()
	e := c.elected(t)
	if c.Settings().ListensForLoss != listens || (e.NotListening == nil) != listens {
		t.Errorf("it listens for its loss: %t (%v), want %t", c.Settings().ListensForLoss, e.NotListening, listens)
	}
	return e
}

// loses waits until the candidate has noticed that its session has ended, and checks that the
// cause is what the server said: a SQLSTATE, or "" if it said nothing. It returns when.
func (c *candidate) loses(t *testing.T, says string) time.Time {
	t.Helper()
	lost := wait[hooks.Demoted](t, c, nil)
	wraps(t, lost.Err, elector.ErrSessionLost)
	if got := stateOf(lost.Err); c.Settings().ListensForLoss && got != says {
		t.Errorf("demoted by what the server said as %q, want %q: %v", got, says, lost.Err)
	}
	if n := len(c.rec.Heartbeats()); n > 0 {
		t.Errorf("%d heartbeats: the test shows nothing", n)
	}
	return lost.At
}

// endsBackend ends the leader's session on a server that lives on.
type endsBackend struct {
	says    string // the SQLSTATE
	setting string // that the leader's session gets, and then loses it; none: it is terminated
	opts    []elector.Option
}

// Each leader has a deputy.
func TestALeaderNoticesBeforeTheNextHeartbeatThatTheServerHasEndedItsSession(t *testing.T) {
	t.Parallel()
	inside := []elector.Option{elector.WithScope(elector.TransactionScope)}
	for name, way := range map[string]endsBackend{
		"terminated":                          {says: "57P01"},
		"terminated in a transaction":         {says: "57P01", opts: inside},
		"idle_session_timeout":                {says: "57P05", setting: "idle_session_timeout"},
		"idle_in_transaction_session_timeout": {says: "25P03", setting: "idle_in_transaction_session_timeout", opts: inside},
		"transaction_timeout":                 {says: "25P04", setting: "transaction_timeout", opts: inside},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if way.setting == "idle_session_timeout" {
				inSessionScope(t, "the leader is never idle outside a transaction")
			}
			overEach(t, func(t *testing.T, d drivers) {
				s := direct(t)
				if name == "transaction_timeout" && one[int](t, s.admin, "SELECT current_setting('server_version_num')::int") < 170_000 {
					t.Skip("this PostgreSQL does not know it")
				}
				election := s.election(t)
				pool, counter := d.openCounted(t, 0, s.Cluster.DSN())
				leader := s.stand(t, pool, election, slices.Concat(unbeaten, []elector.Option{directly()}, way.opts)...).run(t, nil)
				leader.leads(t, d.listens())
				deputy := s.stand(t, d.open(t, 1, s.Cluster.DSN()), election, slices.Concat(unbeaten, []elector.Option{directly(), elector.WithTakeover(elector.Deputy)}, way.opts)...).run(t, nil)
				wait(t, deputy, func(e hooks.Campaign) bool { return e.Deputy })
				pid, state := s.holders(t, leader.Key())[0], "idle"
				if leader.Settings().Scope == elector.TransactionScope {
					state = "idle in transaction"
				}
				eventually(t, "the session shows nothing", func() bool {
					return one[string](t, s.admin, "SELECT concat_ws(' ', state, wait_event, backend_xmin) FROM pg_stat_activity WHERE pid = $1", pid) == state+" ClientRead"
				})
				if way.setting != "" {
					for _, query := range []string{db.HoldsLock, db.HeldLocks, db.PingTransaction} { // whichever Verify sends
						counter.before.Store(query, "SET "+way.setting+" = 100")
					}
					_ = termOf(t, leader).Verify(soon(t)) // the server may be quicker
				} else {
					s.terminate(t, pid)
				}
				leader.loses(t, way.says)
				eventually(t, "somebody leads", func() bool { return len(leader.rec.Elected()) > 1 || len(deputy.rec.Elected()) > 0 })
			})
		})
	}
}

// The leader's server shuts down or crashes, and comes back.
func TestALeaderNoticesBeforeTheNextHeartbeatThatItsServerIsGone(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		cluster := own(t)
		for _, way := range []struct {
			name, says string
			takeover   elector.Takeover // of both
			strike     func(s *server, pid int) error
		}{
			{"fast shutdown", "57P01", elector.Deputy, func(*server, int) error { return cluster.Shutdown(soon(t), pgcluster.Fast) }},
			{"fast shutdown beside a wait", "57P01", elector.Wait, func(*server, int) error { return cluster.Shutdown(soon(t), pgcluster.Fast) }},
			{"immediate shutdown", "", elector.Wait, func(*server, int) error { return cluster.Shutdown(soon(t), pgcluster.Immediate) }},
			{"kill -9 of its backend", "", elector.Deputy, func(_ *server, pid int) error { return cluster.KillBackend(pid) }},
			{"kill -9 of another backend", "", elector.Deputy, func(s *server, _ int) error {
				return cluster.KillBackend(one[int](t, s.admin, "SELECT pg_backend_pid()"))
			}},
			{"kill -9 of the postmaster", "57P01", elector.Deputy, func(*server, int) error { return syscall.Kill(cluster.PID(), syscall.SIGKILL) }},
		} {
			t.Run(way.name, func(t *testing.T) {
				s := withoutPooler(t, cluster)
				election := unique(t.Name())
				opts := append(slices.Clone(unbeaten), directly(), elector.WithTakeover(way.takeover))
				leader := s.stand(t, d.open(t, 0, s.DSN()), election, opts...).run(t, nil)
				first := leader.leads(t, d.listens())
				next := s.stand(t, d.open(t, 1, s.DSN()), election, opts...).run(t, nil)
				if next.follows(t); way.takeover == elector.Wait {
					s.waits(t, next)
				}
				check(t, way.strike(s, s.holders(t, leader.Key())[0]))
				lost := leader.loses(t, way.says)
				if way.name == "kill -9 of the postmaster" { // its backends end when they notice
					eventually(t, "the server is gone", func() bool { return !s.up() })
					return
				}
				if strings.Contains(way.name, "shutdown") {
					check(t, cluster.Resume(soon(t)))
				}
				eventually(t, "the server is back", s.up)
				eventually(t, "somebody leads", func() bool { return len(leader.rec.Elected()) > 1 || len(next.rec.Elected()) > 0 })
				for _, led := range append(leader.rec.Elected()[1:], next.rec.Elected()...) {
					if d.listens() && led.At.Before(lost) {
						t.Errorf("a successor was elected %v before the leader knew", lost.Sub(led.At))
					}
					if led.Token <= first.Token {
						t.Errorf("token %d after the crash does not rise above %d", led.Token, first.Token)
					}
				}
				eventually(t, "only the candidate that holds the lock leads", func() bool {
					holder, err := next.Leader(soon(t))
					return err == nil && leader.IsLeader() == (holder.CandidateID == leader.CandidateID()) && next.IsLeader() == (holder.CandidateID == next.CandidateID())
				})
				if s.deputy(t, []*candidate{next, leader}); way.takeover == elector.Wait {
					eventually(t, "the deputy waits again", func() bool { return len(s.waiters(t, leader.Key())) == 1 })
				}
			})
		}
	})
}

// The primary is lost, and its standby is promoted.
func TestALeaderNoticesBeforeTheNextHeartbeatThatItsPrimaryIsReplaced(t *testing.T) {
	inSessionScope(t, "it starts no pooler")
	t.Parallel()
	primary := own(t)
	standby, err := primary.AddStandby(t.Context())
	check(t, err)
	p, s := withoutPooler(t, primary), withoutPooler(t, standby)
	var leaders []*candidate
	var next []*candidate
	var address atomic.Pointer[string]
	move := func(to *server) { dsn := to.DSN(); address.Store(&dsn) }
	move(p)
	for _, d := range []drivers{pgx, pq} {
		election := unique(t.Name())
		leader := s.stand(t, d.openMoving(t, 0, &address), election, unbeaten...).run(t, nil)
		leader.leads(t, d.listens())
		follower := s.stand(t, d.openMoving(t, 0, &address), election, unbeaten...).run(t, nil)
		follower.follows(t)
		leaders, next = append(leaders, leader), append(next, follower)
	}
	check(t, primary.Kill())
	move(s)
	check(t, standby.Promote(soon(t)))
	for i, leader := range leaders {
		leader.loses(t, "")
		eventually(t, "somebody leads", func() bool { return len(leader.rec.Elected()) > 1 || len(next[i].rec.Elected()) > 0 })
	}
}

func TestALeaderNoticesBeforeTheNextHeartbeatThatItsConnectionIsCut(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		s := direct(t)
		l := s.behindAProxy(t)
		for name, cut := range map[string]func(){"RST": l.proxy.Reset, "FIN": l.proxy.HangUp} {
			t.Run(name, func(t *testing.T) {
				c := l.stand(t, d, 0, l.election(t), append(unbeaten, directly())...).run(t, nil)
				c.leads(t, d.listens())
				cut()
				c.loses(t, "")
			})
		}
	})
}

// KILL of PgBouncer ends the connections of its clients. RECONNECT waits until they are released,
// so it ends no term.
func TestALeaderNoticesBeforeTheNextHeartbeatThatAPoolerEndsItsConnection(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]pgcluster.PoolMode{"session pooling": pgcluster.Session, "transaction pooling": pgcluster.Transaction} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := direct(t)
			overEach(t, func(t *testing.T, d drivers) {
				b := bounced(t, s.Cluster, mode, pgcluster.WithPoolSize(20))
				c := s.stand(t, d.open(t, 0, b.DSN(pgcluster.WithParam("default_query_exec_mode", "exec"))), s.election(t), unbeaten...)
				c.shared, c.moved = true, mode == pgcluster.Transaction
				c.run(t, nil)
				c.leads(t, d.listens())
				check(t, b.Console(soon(t), "RECONNECT"))
				expect(t, termOf(t, c).Verify(soon(t)))
				check(t, b.Console(soon(t), "KILL postgres"))
				c.loses(t, "08P01")
				check(t, b.Console(soon(t), "RESUME postgres"))
			})
		})
	}
}

// Whatever is between the pool and the server, pgx's connection is found and waited on; in each of its
// modes, too: TestElectionsWorkInEveryQueryMode.
func TestALeaderListensForItsLossHoweverItIsConnected(t *testing.T) {
	t.Parallel()
	s := direct(t)
	for name, open := range map[string]func(*testing.T) *sql.DB{
		"a pgxpool": func(t *testing.T) *sql.DB {
			pool := stdlib.OpenDBFromPool(s.pgxPool(t))
			t.Cleanup(func() { expect(t, pool.Close()) })
			return pool
		},
		"a Unix socket": func(t *testing.T) *sql.DB { return pgx.open(t, 0, s.onASocket(t)) },
		"TLS":           func(t *testing.T) *sql.DB { return pgx.open(t, 0, s.onTLS(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := s.stand(t, open(t), s.election(t), append(unbeaten, directly())...).run(t, nil)
			c.leads(t, true)
			expect(t, termOf(t, c).Verify(soon(t)))
			s.terminate(t, s.holders(t, c.Key())[0])
			c.loses(t, "57P01")
		})
	}
}

// forward passes on what arrives at the listener. greet prepares a client's connection.
func (s *server) forward(t *testing.T, at net.Listener, greet func(net.Conn) (net.Conn, error)) {
	t.Helper()
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = at.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			raw, err := at.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer raw.Close()
				client, err := greet(raw)
				if err != nil {
					return
				}
				server, err := net.Dial("tcp", s.Addr())
				if err != nil {
					return
				}
				all.Go(func() {
					_, _ = io.Copy(server, client)
					_ = server.Close()
				})
				_, _ = io.Copy(client, server)
				_ = client.Close()
				_ = server.Close()
			})
		}
	})
}

// onASocket returns an address of the server by a Unix socket.
func (s *server) onASocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg") // short: the path of a socket has some 100 bytes at the most
	check(t, err)
	t.Cleanup(func() { expect(t, os.RemoveAll(dir)) })
	at, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	check(t, err)
	s.forward(t, at, func(c net.Conn) (net.Conn, error) { return c, nil })
	return "host=" + dir + " port=5432 user=postgres dbname=postgres"
}

// onTLS returns an address of the server by TLS.
func (s *server) onTLS(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	certificate := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &certificate, &certificate, &key.PublicKey, key)
	check(t, err)
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	s.forward(t, at, func(c net.Conn) (net.Conn, error) {
		if _, err := io.ReadFull(c, make([]byte, 8)); err != nil { // SSLRequest
			return nil, err
		}
		if _, err := c.Write([]byte("S")); err != nil {
			return nil, err
		}
		return tls.Server(c, config), nil
	})
	return "postgres://postgres@" + at.Addr().String() + "/postgres?sslmode=require"
}

// heap returns the bytes in use. What is in a sync.Pool, such as a driver's buffers, survives one collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
