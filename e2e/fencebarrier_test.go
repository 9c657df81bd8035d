//go:build unix

package e2e_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"

	"github.com/pgelector/pgelector/e2e/sandbox"
)

// Settings of a term that learns of its end late.
const (
	longLease = 3 * time.Minute
	rarely    = 10 * time.Second
)

// leadUnheard is lead, with rare heartbeats and through the proxy.
func (l link) leadUnheard(t *testing.T, d drivers, election string) (*candidate, *elector.Term) {
	t.Helper()
	c, term := l.lead(t, d.open(t, 0, l.cut()), election, elector.WithLease(longLease), elector.WithHeartbeatInterval(rarely))
	t.Cleanup(l.proxy.Heal)
	return c, term
}

// terminateUnheard terminates the leader's backend. The leader believes on.
func (l link) terminateUnheard(t *testing.T, c *candidate) {
	t.Helper()
	l.proxy.BlackHole()
	l.terminate(t, l.leaderPID(t, c.Key()))
}

// campaigning starts a campaign in the background.
func campaigning(t *testing.T, c *candidate) <-chan *elector.Term {
	t.Helper()
	elected := make(chan *elector.Term, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(elected)
		term, err := c.Campaign(ctx)
		if err == nil {
			elected <- term
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if term, leading := c.Term(); leading {
			_ = term.Resign(soon(t))
		}
	})
	return elected
}

// atTheBarrier waits until the next leader holds the lock and waits for the last term's
// transactions.
func (s *server) atTheBarrier(t *testing.T, key int64) {
	t.Helper()
	eventually(t, "the next leader is at the barrier", func() bool {
		return len(s.locksOf(t, key, "NOT granted AND objsubid = 2")) == 1
	})
}

// A transaction that began in time commits, and the next leader sees it. No other one begins meanwhile.
func TestTheNextLeaderWaitsForTheTransactionsOfTheLast(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]elector.Option{"polling": nil, "waiting": {elector.WithTakeover(elector.Wait)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overDrivers(t, func(t *testing.T, d drivers) {
				s := onShared(t)
				ledger := s.ledger(t)
				election := s.election(t)
				pool := d.open(t, 0, s.DSN())
				l := s.behindAProxy(t)
				c, term := l.leadUnheard(t, d, election)
				second := s.stand(t, d.open(t, 1, s.DSN()), election, append(opts, elector.WithLease(longLease), elector.WithHeartbeatInterval(rarely))...)
				elected := campaigning(t, second)
				second.follows(t)
				late := func() { // once it is refused, InTx asks the session, which would not answer for the rest of the lease
					defer time.AfterFunc(200*time.Millisecond, l.proxy.Heal).Stop()
					wraps(t, term.InTx(soon(t), pool, nil, note(ledger, "late")), elector.ErrNotLeader)
				}
				meanwhile := opts == nil
				want := []string{"in time", "next"}
				err := term.InTx(soon(t), pool, nil, func(tx *sql.Tx) error {
					check(t, note(ledger, "in time")(tx))
					l.terminateUnheard(t, c)
					s.atTheBarrier(t, c.Key())
					select {
					case <-elected:
						t.Error("elected during a transaction of the last term")
					default:
					}
					if meanwhile {
						late()
					}
					return nil
				})
				if err != nil && meanwhile { // the late one has ended the term
					wraps(t, err, elector.ErrRolledBack)
					want = want[1:]
				} else {
					check(t, err)
				}
				next := <-elected
				if next == nil || next.Token() <= term.Token() {
					t.Fatalf("elected %v", next)
				}
				expect(t, next.InTx(soon(t), second.pool, &sql.TxOptions{Isolation: sql.LevelSerializable}, func(tx *sql.Tx) error {
					if n := one[int](t, tx, "SELECT count(*) FROM "+ledger); n != len(want)-1 {
						t.Errorf("the next leader sees %d notes", n)
					}
					return note(ledger, "next")(tx)
				}))
				late()
				s.notes(t, ledger, want...)
			})
		})
	}
}

// holderVariable makes the test binary run a leader that holds a transaction open.
const holderVariable = "PGELECTOR_E2E_HOLDER"

func init() {
	if text := os.Getenv(holderVariable); text != "" {
		os.Exit(runHolder(text))
	}
}

type holderSettings struct {
	Driver, DSN, Election, ID, Do string
	Lease                         time.Duration
}

// What a holder does in its transaction until the test freezes it.
var holds = map[string]func(tx *sql.Tx, ready func()) error{
	"idle": func(tx *sql.Tx, ready func()) error {
		ready()
		select {}
	},
	"in a statement": func(tx *sql.Tx, ready func()) error {
		ready()
		_, err := tx.Exec("SELECT pg_sleep(3600)")
		return err
	},
	"reading a long result": func(tx *sql.Tx, ready func()) error { // more than sockets hold
		rows, err := tx.Query("SELECT repeat('x', 10000) FROM generate_series(1, 100000)")
		if err != nil {
			return err
		}
		defer rows.Close()
		rows.Next()
		ready()
		select {}
	},
	"sending a copy": func(tx *sql.Tx, ready func()) error { // lib/pq's own protocol for it
		if _, err := tx.Exec("CREATE TEMPORARY TABLE copied (note text)"); err != nil {
			return err
		}
		stmt, err := tx.Prepare("COPY copied (note) FROM STDIN")
		if err != nil {
			return err
		}
		for range 10000 {
			if _, err := stmt.Exec(strings.Repeat("x", 100)); err != nil {
				return err
			}
		}
		ready()
		select {}
	},
}

func runHolder(text string) (exit int) {
	var s holderSettings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return complain(err)
	}
	go func() { // ends with the test
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	pool, err := sql.Open(s.Driver, s.DSN)
	if err != nil {
		return complain(err)
	}
	e, err := elector.New(pool, s.Election, elector.WithCandidateID(s.ID), elector.WithLease(s.Lease))
	if err != nil {
		return complain(err)
	}
	term, err := e.Campaign(context.Background())
	if err != nil {
		return complain(err)
	}
	err = term.InTx(context.Background(), pool, nil, func(tx *sql.Tx) error {
		return holds[s.Do](tx, func() { fmt.Println("holding") })
	})
	return complain(err)
}

// A frozen leader with an open transaction delays the next leader until the server ends
// that transaction. Without that bound the test would wait as long as the process is
// frozen.
func TestAFrozenLeaderWithAnOpenTransactionIsReplaced(t *testing.T) {
	t.Parallel()
	for name := range holds {
		frozenIsReplaced(t, name, "alone")
	}
	frozenIsReplaced(t, "reading a long result", "as one of many")
}

func frozenIsReplaced(t *testing.T, do, how string) {
	t.Helper()
	t.Run(strings.ReplaceAll(do+" "+how, " ", "-"), func(t *testing.T) {
		t.Parallel()
		overEach(t, func(t *testing.T, d drivers) {
			if do == "sending a copy" && d.name(0) != "postgres" {
				t.Skip("database/sql has no COPY on pgx")
			}
			s := onShared(t)
			settings := holderSettings{Driver: d.name(0), DSN: s.DSN(), Election: s.election(t), ID: unique("holder"), Do: do, Lease: 2 * short} // also for what it does before it is frozen
			text, err := json.Marshal(settings)
			check(t, err)
			holder := exec.Command(os.Args[0])
			holder.Env = append(os.Environ(), holderVariable+"="+string(text))
			in, err := holder.StdinPipe()
			check(t, err)
			defer in.Close()
			out, err := holder.StdoutPipe()
			check(t, err)
			check(t, holder.Start())
			defer func() {
				_ = holder.Process.Kill()
				_ = holder.Wait()
			}()
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil || line != "holding\n" {
				t.Fatalf("%q, %v", line, err)
			}
			key := elector.KeyFromName(settings.Election)
			guards := func() []int { return s.locksOf(t, key, "objsubid = 2 AND mode = 'ShareLock'") }
			if len(guards()) != 1 {
				t.Fatal("no transaction is open")
			}
			check(t, sandbox.Signal(holder.Process, syscall.SIGSTOP))
			began := time.Now()
			next := s.stand(t, d.open(t, 0, s.DSN()), settings.Election)
			campaigner := next.Elector
			if how == "as one of many" {
				campaigner = s.share(t, d.open(t, 0, s.DSN())).join(t, []string{settings.Election}).all[0]
			}
			term, err := campaigner.Campaign(soon(t))
			if err != nil {
				for _, f := range next.rec.Failures() {
					t.Logf("%s: %v", f.Op, f.Err)
				}
				t.Fatalf("not replaced: %v", err)
			}
			t.Logf("replaced after %.1f leases", time.Since(began).Seconds()/settings.Lease.Seconds())
			if len(guards()) != 0 {
				t.Error("elected during the transaction")
			}
			expect(t, term.Resign(soon(t)))
		})
	})
}
