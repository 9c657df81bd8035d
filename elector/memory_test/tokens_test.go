package memory_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// impossible are tokens that no PostgreSQL server answers with for a lock that it has granted.
var impossible = map[string]int64{"no token": 0, "no timeline": 745, "no transaction id": 1 << 48, "negative": -745}

// On a session of its own, inside a transaction, and on a shared session.
func TestAnImpossibleAnswerElectsNobodyAndSaysSo(t *testing.T) {
	for what, token := range impossible {
		for _, path := range []string{"own", "inside", "shared"} {
			scene(t, fmt.Sprintf("%s, %s", path, what), func(b *bench) {
				started := time.Now()
				replaced := "Confirm"
				answer := func(pid int32) []any {
					return []any{true, pid, token, "0", false, fmt.Sprintf("7 %d.000000", started.Unix())}
				}
				if path == "shared" {
					replaced, answer = "Tokens", func(pid int32) []any { return []any{elector.KeyFromName("orders"), true, token, "0", pid} }
				}
				b.Handle(func(s electortest.Statement) (electortest.Answer, error) {
					return electortest.Answer{Rows: [][]any{answer(s.PID)}}, nil
				})
				var n atomic.Int32
				wire := func(m message, send func() error) error {
					if m.name == replaced && n.Add(1) == 1 {
						*m.text = "SHOW another"
					}
					return send()
				}
				var opts []elector.Option
				if path == "inside" {
					opts = append(opts, inside)
				}
				one := b.wired(wire, "one", opts...)
				e := one.Elector
				if path == "shared" {
					session, err := elector.NewSession(one.pool, elector.WithHooks(one.rec))
					b.check(err)
					b.Cleanup(func() { b.wraps(session.Close(always)) })
					e, err = session.Elector("orders")
					b.check(err)
				}
				term, elected, err := e.TryCampaign(always)
				if elected {
					b.Errorf("elected, with token %d", term.Token())
					b.wraps(term.Resign(always))
				}
				b.wraps(err, elector.ErrNoToken)
				if synctest.Wait(); b.holds(e) {
					b.Error("it keeps the lock")
				}
				b.failed(one, hooks.OpCampaign)
				for _, f := range one.rec.Failures() {
					if f.Permanent {
						b.Error("refused for good")
					}
				}
				term = b.campaign(e)
				if term.Token()>>48 != 1 {
					b.Errorf("token %x", term.Token())
				}
				b.wraps(term.Resign(always))
			})
		}
	}
}

// The epoch is the remedy, and who uses no tokens loses nothing.
func TestATokenThatHasFallenElectsAndIsReportedOnceForEachTerm(t *testing.T) {
	bubble(t, func(b *bench) {
		promoted := b.NewStandby(0)
		defer promoted.Close()
		b.wraps(promoted.Promote())
		one := &candidate{pool: promoted.Open(), rec: hookstest.NewRecorder()} // which calls a fall a violation
		defer one.pool.Close()
		var err error
		one.Elector, err = elector.New(one.pool, "orders", elector.WithHooks(one.rec))
		b.check(err)
		lead := func() (token int64) {
			term := b.campaign(one.Elector)
			defer func() { b.wraps(term.Resign(always)) }()
			return term.Token()
		}
		largest := max(lead(), lead())
		b.failed(one)
		promoted.Upgrade()
		for _, want := range [][]hooks.Op{{hooks.OpToken}, {hooks.OpToken, hooks.OpToken}} {
			if token := lead(); token >= largest {
				b.Errorf("the token is %x after %x", token, largest)
			}
			b.failed(one, want...)
		}
		for _, f := range one.rec.Failures() {
			if !errors.Is(f.Err, elector.ErrTokenFell) || !strings.Contains(f.Err.Error(), fmt.Sprint(largest)) || f.Permanent {
				b.Errorf("reported %+v", f)
			}
		}
		promoted.SetTokenEpoch("2")
		if token := lead(); token <= largest {
			b.Errorf("the token is %x after %x", token, largest)
		}
		b.failed(one, hooks.OpToken, hooks.OpToken)
	})
}

// fallen counts the reports that a token fell.
func (b *bench) fallen(rec *hookstest.Recorder) (n int) {
	for _, f := range rec.Failures() {
		if errors.Is(f.Err, elector.ErrTokenFell) && f.Op == hooks.OpToken && !f.Permanent {
			n++
		}
	}
	return n
}

// The failover manager promotes a standby, discards what it did, and returns to the old primary. A candidate
// of another election led on the standby meanwhile.
func TestATokenOfAnOlderTimelineThanAnotherElectionOfThePoolHadIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		before, after string // the epoch of the database
		own           int    // WithTokenEpoch
		otherPool     bool
		want          int
	}{
		"without an epoch":                  {"0", "0", 0, false, 1},
		"with the same epoch all the time":  {"3", "3", 0, false, 1},
		"the epoch was raised":              {"0", "1", 0, false, 0},
		"the epoch was raised, from three":  {"3", "4", 0, false, 0},
		"with the same epoch of its own":    {"0", "0", 2, false, 1},
		"the database's was raised over it": {"0", "3", 2, false, 0},
		"its pool has met no newer one":     {"0", "0", 0, true, 0},
	} {
		scene(t, name, func(b *bench) {
			promoted := b.NewStandby(0)
			defer promoted.Close()
			b.wraps(promoted.Promote())
			promoted.SetTokenEpoch(c.before)
			process := b.NewProcess()
			pool := process.Open()
			defer pool.Close()
			pool.SetMaxIdleConns(0)
			lead := func(pool *sql.DB, election string) *hookstest.Recorder {
				rec := hookstest.NewRecorder()
				e, err := elector.New(pool, election, elector.WithHooks(rec), elector.WithTokenEpoch(c.own))
				b.check(err)
				for range 2 {
					b.wraps(b.campaign(e).Resign(always))
				}
				synctest.Wait()
				return rec
			}
			process.ConnectTo(promoted)
			if n := b.fallen(lead(pool, "orders")); n != 0 {
				b.Errorf("on the newer timeline %d reports", n)
			}
			process.ConnectTo(b.Server)
			b.SetTokenEpoch(c.after)
			if c.otherPool {
				pool = process.Open()
				defer pool.Close()
			}
			if n := b.fallen(lead(pool, "bills")); n != 2*c.want { // two terms
				b.Errorf("%d reports, want %d", n, 2*c.want)
			}
		})
	}
}

// Elections that one statement confirms have one token.
func TestElectionsOfASessionWithOneTokenReportNoFall(t *testing.T) {
	bubble(t, func(b *bench) {
		rec := hookstest.NewRecorder()
		b.until(b.share("one", 3, elector.WithHooks(rec)), 3)
		if all := rec.Failures(); len(all) > 0 {
			b.Errorf("reported %+v", all)
		}
	})
}
