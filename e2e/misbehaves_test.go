//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/unruly"
	"github.com/pgelector/pgelector/elector"
)

// A pond is a pool whose connections misbehave. Its idle connections lead through one proxy, and all others, also
// that of the leader, through another.
type pond struct {
	link
	idle    *pgcluster.Proxy
	standby *pgcluster.Cluster
	pool    *sql.DB
	at      atomic.Pointer[string] // where new connections lead
}

// A misbehaviour begins before the call.
type misbehaviour struct {
	habit unruly.Habit // of each connection, at any time
	begin func(p *pond)
	lease time.Duration // 0 means that of the tests
	may   []error       // with which a single call may fail; an election may try again
}

var (
	silent = []error{elector.ErrNoAnswer, context.DeadlineExceeded} // of one connection after a lease, at most
	broken = []error{syscall.ECONNRESET, driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF}
	// A standby knows no locks but its own, and who looks is told what it knows.
	onStandby       = []error{elector.ErrServerReadOnly, elector.ErrNoLeader, elector.ErrNoSuccessor, errNoCandidates}
	errNoCandidates = errors.New("there are no candidates")
)

// misbehaves are the rows of the table. The idle connections are gone, so that a call makes a new one.
var misbehaves = map[string]misbehaviour{
	"nothing":                          {begin: func(*pond) {}},
	"idle connections are silent":      {begin: func(p *pond) { p.idle.Forget() }, lease: 8 * time.Second, may: silent},
	"idle connections are closed":      {begin: func(p *pond) { p.idle.HangUp() }},
	"one leads to a standby":           {begin: func(p *pond) { p.idle.Reset(); p.proxy.Divert(p.standby) }, may: onStandby},
	"they lead to a standby in turn":   {begin: func(p *pond) { p.idle.Reset(); p.proxy.LeadTo(p.standby, p.Cluster) }, may: onStandby},
	"in turn, and the pool keeps none": {begin: func(p *pond) { p.pool.SetMaxIdleConns(-1); p.proxy.LeadTo(p.Cluster, p.standby) }, may: onStandby},
	"the first packet is slow":         {begin: func(p *pond) { p.idle.Reset(); p.proxy.SlowStart(time.Second) }},
	"new connections are refused":      {begin: func(p *pond) { p.idle.Reset(); p.proxy.Refuse(time.Second) }, may: broken},
}

func init() {
	for _, h := range append(unruly.Wires, unruly.Wrappers...) {
		misbehaves["a connection "+string(h)] = misbehaviour{habit: h, begin: func(*pond) {}}
	}
}

func (m misbehaviour) permits(err error) bool {
	return slices.ContainsFunc(m.may, func(may error) bool { return errors.Is(err, may) })
}

// A caller makes a call of the API, and returns its error.
type caller func(t *testing.T, p *pond, c *candidate, term *elector.Term, next *candidate) error

// make makes the call, which must return before its context ends.
func (call caller) make(t *testing.T, p *pond, c *candidate, term *elector.Term, next *candidate) error {
	t.Helper()
	began := time.Now()
	err := call(t, p, c, term, next)
	if took := time.Since(began); took > patience*2/3 {
		t.Errorf("it has returned after %v: %v", took, err)
	}
	return err
}

var errNotElected = errors.New("nobody else stands, and it was not elected")

// elections are the calls that elect. After one that only tries and has failed, another try is made.
var elections = map[string]caller{
	"Run": func(t *testing.T, _ *pond, c *candidate, _ *elector.Term, _ *candidate) error {
		ctx, stop := context.WithCancel(soon(t))
		defer stop()
		err := c.Run(ctx, func(context.Context, *elector.Term) error { stop(); return nil })
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	},
	"Campaign": func(t *testing.T, _ *pond, c *candidate, _ *elector.Term, _ *candidate) error {
		term, err := c.Campaign(soon(t))
		return resigned(t, term, err == nil, err)
	},
	"TryCampaign": func(t *testing.T, _ *pond, c *candidate, _ *elector.Term, _ *candidate) error {
		term, elected, err := c.TryCampaign(soon(t))
		return resigned(t, term, elected, err)
	},
	"TryRun": func(t *testing.T, _ *pond, c *candidate, _ *elector.Term, _ *candidate) error {
		elected, err := c.TryRun(soon(t), func(ctx context.Context, term *elector.Term) error { return term.Verify(ctx) })
		if err == nil && !elected {
			err = errNotElected
		}
		return err
	},
}

func resigned(t *testing.T, term *elector.Term, elected bool, err error) error {
	switch {
	case err != nil:
		return err
	case !elected:
		return errNotElected
	}
	return errors.Join(term.Verify(soon(t)), term.Resign(soon(t)))
}

// calls are those of a leader, and of whoever looks.
var calls = map[string]caller{
	"Verify": func(t *testing.T, _ *pond, _ *candidate, term *elector.Term, _ *candidate) error {
		return term.Verify(soon(t))
	},
	"InTx": func(t *testing.T, p *pond, _ *candidate, term *elector.Term, _ *candidate) error {
		var errs []error
		for range 3 {
			errs = append(errs, term.InTx(soon(t), p.pool, nil, func(tx *sql.Tx) error { _, err := tx.Exec("SELECT 1"); return err }))
		}
		return errors.Join(errs...)
	},
	"RunIfLeader": func(t *testing.T, _ *pond, c *candidate, _ *elector.Term, _ *candidate) error {
		ran, err := c.RunIfLeader(soon(t), func(context.Context) error { return nil })
		if err == nil && !ran {
			err = errors.New("it has not run")
		}
		return err
	},
	"Leader": func(t *testing.T, _ *pond, c *candidate, term *elector.Term, _ *candidate) error {
		leader, err := c.Leader(soon(t))
		return isLeader(c, leader, err)
	},
	"Observe": func(t *testing.T, _ *pond, c *candidate, _ *elector.Term, _ *candidate) (first error) {
		for leader, err := range c.Observe(soon(t)) {
			return isLeader(c, leader, err)
		}
		return errors.New("nothing was observed")
	},
	"Candidates": func(t *testing.T, _ *pond, c *candidate, _ *elector.Term, _ *candidate) error {
		all, err := c.Candidates(soon(t))
		if err == nil && len(all) == 0 {
			err = errNoCandidates
		}
		return err
	},
	"Resign": func(t *testing.T, _ *pond, _ *candidate, term *elector.Term, _ *candidate) error {
		return term.Resign(soon(t))
	},
	"TransferTo": func(t *testing.T, _ *pond, _ *candidate, term *elector.Term, next *candidate) error {
		return term.TransferTo(soon(t), next.CandidateID())
	},
	"RequestResign": func(t *testing.T, p *pond, c *candidate, _ *elector.Term, _ *candidate) error {
		_, err := elector.RequestResign(soon(t), p.pool, c.Election())
		return err
	},
	"RequestTransfer": func(t *testing.T, p *pond, c *candidate, _ *elector.Term, next *candidate) error {
		_, err := elector.RequestTransfer(soon(t), p.pool, c.Election(), next.CandidateID())
		return err
	},
	"Close": func(t *testing.T, _ *pond, c *candidate, _ *elector.Term, _ *candidate) error {
		return c.Close(soon(t))
	},
}

func isLeader(c *candidate, leader elector.Leader, err error) error {
	if err == nil && leader.CandidateID != c.CandidateID() {
		err = fmt.Errorf("%q leads", leader.CandidateID)
	}
	return err
}

// Whatever a pool does, each call returns before its context ends: an election elects, and nothing is left locked
// or taken from the pool.
func TestWhateverAPoolDoesEachCallReturnsAndLeavesNothing(t *testing.T) {
	inSessionScope(t, "its connections lead to the servers themselves")
	t.Parallel()
	primary := own(t, pgcluster.WithSetting("max_connections", "300"))
	standby, err := primary.AddStandby(t.Context())
	check(t, err)
	s := withoutPooler(t, primary)
	for what, m := range misbehaves {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			overEach(t, func(t *testing.T, d drivers) {
				for name, call := range elections {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						p, c := s.pond(t, d, m, standby)
						p.misbehave(t, m)
						err := call.make(t, p, c, nil, nil)
						for n := 0; n < 100 && m.permits(err); n++ {
							time.Sleep(retry)
							err = call.make(t, p, c, nil, nil)
						}
						expect(t, err)
					})
				}
				for name, call := range calls {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						p, c := s.pond(t, d, m, standby)
						next := s.stand(t, d.open(t, 0, s.DSN()), c.Election())
						term := termOf(t, c.run(t, nil))
						if strings.Contains(name, "Re") || name == "TransferTo" { // nobody waits for a leader
							next.run(t, nil).follows(t)
						}
						p.misbehave(t, m)
						err := call.make(t, p, c, term, next)
						if err != nil && !m.permits(err) {
							t.Error(err)
						}
						ends := strings.HasPrefix(name, "Request") || name == "Resign" || name == "TransferTo" || name == "Close"
						switch {
						case ends && err == nil && term.Valid():
							t.Error("the term goes on")
						case !ends && !term.Valid():
							t.Errorf("the term has ended: %v", context.Cause(term.Context()))
						}
					})
				}
			})
		})
	}
}

// pond opens a pool, and makes a candidate with it.
func (s *server) pond(t *testing.T, d drivers, m misbehaviour, standby *pgcluster.Cluster) (*pond, *candidate) {
	t.Helper()
	p := &pond{link: s.behindAProxy(t), idle: s.behindAProxy(t).proxy, standby: standby}
	p.leads(p.proxy)
	var err error
	p.pool, err = unruly.Open(d.name(0), p.proxy.DSN(), m.habit, func() string { return *p.at.Load() })
	check(t, err)
	t.Cleanup(func() { expect(t, p.pool.Close()) })
	opts := []elector.Option{}
	if m.lease > 0 {
		opts = append(opts, elector.WithLease(m.lease))
	}
	c := s.stand(t, p.pool, s.election(t), opts...)
	t.Cleanup(func() {
		p.proxy.LeadTo(s.Cluster)
		p.proxy.Refuse(0)
		p.idle.Reset() // lib/pq waits on a silent connection until the network gives it up
		eventually(t, "nothing is taken from the pool", func() bool { return p.pool.Stats().InUse == 0 })
	})
	return p, c
}

func (p *pond) leads(to *pgcluster.Proxy) {
	at := to.Addr()
	p.at.Store(&at)
}

// misbehave leaves two idle connections in the pool, and begins.
func (p *pond) misbehave(t *testing.T, m misbehaviour) {
	t.Helper()
	p.pool.SetMaxIdleConns(0) // those that an election has left
	p.leads(p.idle)
	leave(t, p.pool, "SELECT 1", 2)
	p.leads(p.proxy)
	m.begin(p)
}
