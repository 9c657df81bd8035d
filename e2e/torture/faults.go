//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// healing is what ends a fault.
type healing = func(context.Context) error

func (n *nemesis) killProcess(ctx context.Context) (healing, string, error) {
	m := n.victim(ctx)
	if m == nil {
		return nil, "", nil
	}
	n.Kill(m)
	return nil, m.Name, nil
}

// freezeProcess claims something of the thaw only if the process led, and stood
// still for longer than its lease allows.
func (n *nemesis) freezeProcess(ctx context.Context) (healing, string, error) {
	m := n.victim(ctx)
	if m == nil {
		return nil, "", nil
	}
	leader, token := n.Leader()
	at := history.Now()
	n.Log.Add(history.Event{Process: m.Name, At: at, Kind: history.Frozen, Token: token})
	m.Signal(syscall.SIGSTOP)
	return func(context.Context) error {
		thaw := history.Event{Process: m.Name, At: history.Now(), Kind: history.Thawed}
		if m == leader && thaw.At.Sub(at) > fleet.Grace {
			thaw.Token = token
		}
		n.Log.Add(thaw)
		m.Signal(syscall.SIGCONT)
		return nil
	}, m.Name, nil
}

func (n *nemesis) resignTerm(context.Context) (healing, string, error) {
	m, _ := n.Leader()
	if m == nil {
		return nil, "", nil
	}
	return nil, m.Name, m.Send(fleet.Resign)
}

func (n *nemesis) leaveSeat(ctx context.Context) (healing, string, error) {
	m := n.victim(ctx)
	if m == nil {
		return nil, "", nil
	}
	n.leavers = append(n.leavers, m)
	return nil, m.Name, nil
}

// faults are all that there are, in the order in which they are listed.
func faults() []fault {
	return []fault{
		{name: "kill", about: "a candidate's process is ended by SIGKILL", strike: (*nemesis).killProcess},
		{name: "freeze", about: "a candidate's process is frozen by SIGSTOP, and thawed", strike: (*nemesis).freezeProcess},
		{name: "resign", about: "the leader gives its term up", strike: (*nemesis).resignTerm},
		{name: "leave", about: "a candidate is told to leave, and another takes its seat", strike: (*nemesis).leaveSeat},
		{name: "terminate", about: "the leader's backend, or everybody's, is ended by pg_terminate_backend", strike: (*nemesis).terminateBackends},
		{name: "cancel", about: "what everybody's backends are doing is cancelled by pg_cancel_backend", strike: (*nemesis).cancelStatements},
		{name: "discard", about: "a stranger on the same pool runs DISCARD ALL, RESET ALL and pg_advisory_unlock_all()", strike: (*nemesis).discardAll},
		{name: "close", about: "the *sql.DB is closed under the elector", strike: (*nemesis).closePool},
		{name: "limit", about: "strangers take every connection that the server has left", strike: (*nemesis).takeConnections},
		{name: "crash", about: "a backend is ended by SIGKILL: the server goes through crash recovery", alone: true, strike: (*nemesis).crashBackend},
		{name: "restart", about: "the server is shut down, mode immediate, and started again", alone: true, strike: (*nemesis).restartServer},
		{name: "stall", about: "every process of the server is frozen by SIGSTOP, and thawed", alone: true, strike: (*nemesis).stallServer},
		{name: "full", about: "the disk of the write-ahead log is full: the server panics, and is started again", alone: true, own: true, strike: (*nemesis).fillDisk},
		{name: "promote", about: "the primary is lost, and its standby promoted", alone: true, strike: (*nemesis).losePrimary},
		{name: "split", about: "the standby is promoted while the old primary lives on, for a while", alone: true, strike: (*nemesis).splitPrimary},
		{name: "hole", about: "a proxy swallows everything, both ways, and lets it go later", strike: (*nemesis).blackHole},
		{name: "slow", about: "a proxy delays everything", strike: (*nemesis).slowDown},
		{name: "reset", about: "a proxy resets its connections, to both ends", strike: (*nemesis).resetConnections},
		{name: "pooler", about: "pgbouncer is restarted", pooler: true, strike: (*nemesis).restartPooler},
		{name: "unplug", about: "a candidate's link is down", own: true, strike: (*nemesis).unplugLink},
		{name: "deaf", about: "what the server sends to a candidate is lost, but not what the candidate sends", own: true, strike: (*nemesis).deafenLink},
		{name: "mute", about: "what a candidate sends is lost, but not what the server sends", own: true, strike: (*nemesis).muteLink},
	}
}

// terminateBackends ends the sessions that hold advisory locks, or all.
func (n *nemesis) terminateBackends(ctx context.Context) (healing, string, error) {
	statement, whom := "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", "everybody"
	if n.rnd.IntN(3) > 0 {
		statement, whom = "SELECT pg_terminate_backend(pid) FROM (SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND granted) l JOIN pg_stat_activity USING (pid) WHERE usename = $1", "who holds locks"
	}
	return nil, whom, n.severing(func() error { return n.ask(ctx, statement) })
}

func (n *nemesis) cancelStatements(ctx context.Context) (healing, string, error) {
	for range 3 {
		if err := n.ask(ctx, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = $1"); err != nil {
			return nil, "", err
		}
	}
	return nil, "everybody", nil
}

// ask asks the primary, unless another fault has it: what cannot be done then is
// left undone.
func (n *nemesis) ask(ctx context.Context, statement string) error {
	asking, cancel := context.WithTimeout(ctx, fleet.Lease)
	defer cancel()
	_ = n.stage.primary.Exec(asking, statement, fleet.Role)
	return context.Cause(ctx)
}

func (n *nemesis) discardAll(ctx context.Context) (healing, string, error) {
	m := n.victim(ctx)
	if m == nil {
		return nil, "", nil
	}
	return nil, m.Name, m.Send(fleet.Discard)
}

// closePool is the end of a candidate: without its pool it can only leave.
func (n *nemesis) closePool(ctx context.Context) (healing, string, error) {
	m := n.victim(ctx)
	if m == nil {
		return nil, "", nil
	}
	n.leavers = append(n.leavers, m)
	return nil, m.Name, m.Send(fleet.Close)
}

// takeConnections takes all that ordinary roles may have.
func (n *nemesis) takeConnections(ctx context.Context) (healing, string, error) {
	var taken []*pgx.Conn
	for {
		asking, cancel := context.WithTimeout(ctx, fleet.Lease)
		conn, err := pgx.Connect(asking, n.stage.primary.DSN(pgcluster.ForRole(fleet.Role), pgcluster.WithParam("application_name", "stranger")))
		cancel()
		if err != nil {
			break // there are no more, or the server is down
		}
		taken = append(taken, conn)
	}
	return func(ctx context.Context) error {
		for _, conn := range taken {
			_ = conn.Close(ctx)
		}
		return nil
	}, fmt.Sprint(len(taken)), context.Cause(ctx)
}

// crashBackend ends the backend of whoever holds the lock.
func (n *nemesis) crashBackend(ctx context.Context) (healing, string, error) {
	conn, err := n.stage.primary.Conn(ctx)
	if err != nil {
		return nil, "", err
	}
	var pid int
	err = conn.QueryRow(ctx, "SELECT pid FROM pg_stat_activity WHERE usename = $1 ORDER BY random() LIMIT 1", fleet.Role).Scan(&pid)
	_ = conn.Close(ctx)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, "nobody", nil
	}
	if err != nil {
		return nil, "", err
	}
	return nil, "", n.severing(func() error {
		if n.stage.primary.KillBackend(pid) != nil {
			return nil // it has ended by itself
		}
		return n.stage.primary.WaitReady(ctx)
	})
}

func (n *nemesis) restartServer(ctx context.Context) (healing, string, error) {
	primary := n.stage.primary
	return func(ctx context.Context) error { return primary.Resume(ctx) }, "",
		n.severing(func() error { return primary.Shutdown(ctx, pgcluster.Immediate) })
}

func (n *nemesis) stallServer(context.Context) (healing, string, error) {
	primary := n.stage.primary
	return func(context.Context) error { return primary.Thaw() }, "", primary.Freeze()
}

// fillDisk leaves no room for the write-ahead log, and has some of it written.
func (n *nemesis) fillDisk(ctx context.Context) (healing, string, error) {
	ballast := filepath.Join(n.stage.logs[n.stage.primary], "ballast")
	if err := fill(ballast); err != nil {
		return nil, "", err
	}
	down := false
	err := n.severing(func() error {
		for range 200 { // recycled files have to be used up, too
			if err := n.stage.primary.Exec(ctx, "SELECT pg_logical_emit_message(false, 'torture', repeat('x', 1000000))"); err != nil {
				down = true
				break
			}
		}
		return context.Cause(ctx)
	})
	if !down && err == nil {
		err = errors.New("the server went on, without room for its log")
	}
	return func(ctx context.Context) error {
		return n.severing(func() error {
			if err := os.Remove(ballast); err != nil {
				return err
			}
			if n.stage.primary.WaitReady(ctx) == nil {
				return nil
			}
			return n.stage.primary.Resume(ctx)
		})
	}, "", err
}

// fill writes until there is no space left.
func fill(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for block := make([]byte, 64<<10); ; {
		if _, err := file.Write(block); errors.Is(err, syscall.ENOSPC) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (n *nemesis) losePrimary(ctx context.Context) (healing, string, error) {
	if err := n.severing(n.stage.primary.Kill); err != nil {
		return nil, "", err
	}
	return func(ctx context.Context) error {
		old, err := n.stage.promote(ctx)
		if err != nil {
			return err
		}
		return errors.Join(n.Move(), n.stage.replace(ctx, old))
	}, "", nil
}

// splitPrimary leaves the leaders connected to the old primary, while everybody
// else is cut off from it, and finds the new one.
func (n *nemesis) splitPrimary(ctx context.Context) (healing, string, error) {
	n.Log.Add(history.Event{At: history.Now(), Kind: history.Promoted, Token: n.stage.timeline + 1})
	old, err := n.stage.promote(ctx)
	if err != nil {
		return nil, "", err
	}
	if err := n.Move(); err != nil {
		return nil, "", err
	}
	err = old.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1
		AND pid NOT IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)`, fleet.Role)
	return func(ctx context.Context) error { return n.retire(ctx, old) }, fmt.Sprintf("timeline %d", n.stage.timeline), err
}

func (n *nemesis) blackHole(ctx context.Context) (healing, string, error) {
	m := n.victimOf(ctx, func(m *fleet.Member) bool { return m.Route == proxied })
	if m == nil {
		return nil, "", nil
	}
	proxy := n.stage.proxies[m.ID] // after a promotion it is another one, and this one closed
	proxy.BlackHole()
	return func(context.Context) error { proxy.Heal(); return nil }, m.Name, nil
}

func (n *nemesis) slowDown(ctx context.Context) (healing, string, error) {
	m := n.victimOf(ctx, func(m *fleet.Member) bool { return m.Route == proxied })
	if m == nil {
		return nil, "", nil
	}
	proxy := n.stage.proxies[m.ID]
	latency := time.Duration(n.rnd.Int64N(int64(fleet.Lease / 2)))
	return func(context.Context) error { proxy.Heal(); return nil }, m.Name, proxy.Slow(latency, latency/4)
}

func (n *nemesis) resetConnections(context.Context) (healing, string, error) {
	return nil, "all", n.severing(func() error {
		for _, proxy := range n.stage.proxies {
			proxy.Reset()
		}
		return nil
	})
}

func (n *nemesis) restartPooler(ctx context.Context) (healing, string, error) {
	return nil, "", n.severing(func() error { return n.stage.restartBouncer(ctx) })
}

// overLink strikes at somebody's link, which may be gone when it is healed.
func (n *nemesis) overLink(ctx context.Context, strike, heal func(*link) error) (healing, string, error) {
	m := n.victimOf(ctx, func(m *fleet.Member) bool { return n.stage.links[m.Name] != nil })
	if m == nil {
		return nil, "", nil
	}
	return func(context.Context) error {
		if n.Members[m.ID] != m {
			return nil
		}
		return heal(n.stage.links[m.Name])
	}, m.Name, strike(n.stage.links[m.Name])
}

func (n *nemesis) unplugLink(ctx context.Context) (healing, string, error) {
	return n.overLink(ctx, (*link).down, (*link).up)
}

func (n *nemesis) deafenLink(ctx context.Context) (healing, string, error) {
	return n.overLink(ctx, (*link).deafen, (*link).hear)
}

func (n *nemesis) muteLink(ctx context.Context) (healing, string, error) {
	return n.overLink(ctx, (*link).mute, (*link).speak)
}
