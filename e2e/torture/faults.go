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
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/elector"
)

// healing ends a fault.
type healing = func(context.Context) error

// hits returns a fault of a victim among the candidates that match.
func hits(among func(*nemesis, *fleet.Member) bool, hit func(*nemesis, *fleet.Member) (healing, error)) func(*nemesis, context.Context) (healing, string, error) {
	return func(n *nemesis, ctx context.Context) (healing, string, error) {
		m := n.victim(ctx, among)
		if m == nil {
			return nil, "", nil
		}
		heal, err := hit(n, m)
		return heal, m.Name, err
	}
}

func anybody(*nemesis, *fleet.Member) bool         { return true }
func behindProxy(_ *nemesis, m *fleet.Member) bool { return m.Route == proxied }
func withLink(n *nemesis, m *fleet.Member) bool    { return n.stage.links[m.Name] != nil }

func (n *nemesis) killProcess(m *fleet.Member) (healing, error) {
	n.Kill(m)
	return nil, nil
}

// freezeProcess marks the thaw with the token only if the process led and was frozen for
// longer than its lease allows: only then is its first IsLeader certain to return false.
func (n *nemesis) freezeProcess(m *fleet.Member) (healing, error) {
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
	}, nil
}

func (n *nemesis) resignTerm(context.Context) (healing, string, error) {
	m, _ := n.Leader()
	if m == nil {
		return nil, "", nil
	}
	return nil, m.Name, m.Send(fleet.Resign)
}

// request makes a request over a candidate's route. It may fail, as the fault of another may last.
func (n *nemesis) request(ctx context.Context) (healing, string, error) {
	m := n.victim(ctx, anybody)
	if m == nil {
		return nil, "", nil
	}
	config, err := pgx.ParseConfig(n.DSN(m))
	if err != nil {
		return nil, "", err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // for the pooler
	transfer := n.rnd.IntN(2) == 0
	whom := "to resign via " + m.Name
	if transfer {
		whom = "to transfer to " + m.Name
	}
	returned := make(chan error, 1)
	go func() {
		pool := stdlib.OpenDB(*config)
		defer pool.Close()
		ctx, cancel := context.WithTimeout(ctx, 2*fleet.Lease)
		defer cancel()
		next, err := elector.Leader{}, error(nil)
		began := time.Now()
		if transfer {
			next, err = elector.RequestTransfer(ctx, pool, fleet.FirstElection, m.Name)
		} else {
			next, err = elector.RequestResign(ctx, pool, fleet.FirstElection)
		}
		switch took := time.Since(began); {
		case took > 2*fleet.Lease+late:
			returned <- fmt.Errorf("it returned after %v", took)
		case transfer && err == nil && next.CandidateID != m.Name:
			returned <- fmt.Errorf("it succeeded, and %q leads instead of %s", next.CandidateID, m.Name)
		default:
			returned <- nil
		}
	}()
	return func(context.Context) error { return <-returned }, whom, nil
}

// late is how late a request may return: it takes a second to withdraw, and the machine is busy.
const late = 3 * time.Second

func (n *nemesis) leaveSeat(m *fleet.Member) (healing, error) {
	n.leavers = append(n.leavers, m)
	return nil, nil
}

// faults returns all faults, in list order.
func faults() []fault {
	return []fault{
		{name: "kill", about: "SIGKILL ends a candidate's process", inject: hits(anybody, (*nemesis).killProcess)},
		{name: "freeze", about: "SIGSTOP freezes a candidate's process, which thaws later", inject: hits(anybody, (*nemesis).freezeProcess)},
		{name: "resign", about: "the leader resigns", inject: (*nemesis).resignTerm},
		{name: "request", about: "somebody else asks the leader to resign, or to transfer its lock to a candidate", inject: (*nemesis).request},
		{name: "leave", about: "a candidate leaves, and another replaces it", inject: hits(anybody, (*nemesis).leaveSeat)},
		{name: "terminate", about: "pg_terminate_backend ends the leader's backend, or all backends", inject: (*nemesis).terminateBackends},
		{name: "cancel", about: "pg_cancel_backend cancels the statements of all backends", inject: (*nemesis).cancelStatements},
		{name: "discard", about: "other code runs DISCARD ALL, RESET ALL and pg_advisory_unlock_all() on the pool's connections", inject: hits(anybody, (*nemesis).discardAll)},
		{name: "close", about: "the elector's *sql.DB is closed", inject: hits(anybody, (*nemesis).closePool)},
		{name: "limit", about: "other clients take every free connection of the server", inject: (*nemesis).takeConnections},
		{name: "crash", about: "SIGKILL ends a backend: the server goes through crash recovery", alone: true, inject: (*nemesis).crashBackend},
		{name: "restart", about: "the server shuts down, mode immediate, and starts again", alone: true, inject: (*nemesis).restartServer},
		{name: "stall", about: "SIGSTOP freezes every process of the server, and they thaw later", alone: true, inject: (*nemesis).stallServer},
		{name: "full", about: "the disk of the write-ahead log is full: the server panics, and starts again", alone: true, own: true, inject: (*nemesis).fillDisk},
		{name: "promote", about: "the primary is lost, and its standby is promoted", alone: true, inject: (*nemesis).losePrimary},
		{name: "host", about: "the host of the server dies, and who is behind a proxy is told nothing; it comes back, or the standby is promoted", alone: true, inject: (*nemesis).loseHost},
		{name: "split", about: "the standby is promoted, and the old primary lives on for a while", alone: true, inject: (*nemesis).splitPrimary},
		{name: "hole", about: "a proxy holds everything back, in both directions, and delivers it later", inject: hits(behindProxy, (*nemesis).blackHole)},
		{name: "slow", about: "a proxy delays everything", inject: hits(behindProxy, (*nemesis).slowDown)},
		{name: "reset", about: "a proxy resets its connections, on both sides", inject: (*nemesis).resetConnections},
		{name: "pooler", about: "both PgBouncers restart", pooler: true, inject: (*nemesis).restartPooler},
		{name: "unplug", about: "a candidate's link is down", own: true, inject: breaks((*link).down, (*link).up)},
		{name: "deaf", about: "what the server sends to a candidate is lost, but not what the candidate sends", own: true, inject: breaks((*link).deafen, (*link).hear)},
		{name: "mute", about: "what a candidate sends is lost, but not what the server sends", own: true, inject: breaks((*link).mute, (*link).speak)},
	}
}

// terminateHolders ends the sessions that hold advisory locks.
const terminateHolders = `SELECT pg_terminate_backend(pid) FROM (SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND granted) l
	JOIN pg_stat_activity USING (pid) WHERE usename = $1`

// terminateBackends ends the sessions that hold advisory locks, or all sessions.
func (n *nemesis) terminateBackends(ctx context.Context) (healing, string, error) {
	statement, whom := "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", "everybody"
	if n.rnd.IntN(3) > 0 {
		statement, whom = terminateHolders, "lock holders"
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

// ask runs a statement on the primary. It ignores failures, since another fault may affect the
// primary.
func (n *nemesis) ask(ctx context.Context, statement string) error {
	asking, cancel := context.WithTimeout(ctx, fleet.Lease)
	defer cancel()
	_ = n.stage.primary.Exec(asking, statement, fleet.Role)
	return context.Cause(ctx)
}

func (n *nemesis) discardAll(m *fleet.Member) (healing, error) { return nil, m.Send(fleet.Discard) }

// closePool closes a candidate's pool. The candidate can then only leave.
func (n *nemesis) closePool(m *fleet.Member) (healing, error) {
	n.leavers = append(n.leavers, m)
	return nil, m.Send(fleet.Close)
}

// takeConnections takes all connections that ordinary roles may have.
func (n *nemesis) takeConnections(ctx context.Context) (healing, string, error) {
	var taken []*pgx.Conn
	for {
		asking, cancel := context.WithTimeout(ctx, fleet.Lease)
		conn, err := pgx.Connect(asking, n.stage.primary.DSN(pgcluster.ForRole(fleet.Role), pgcluster.WithParam("application_name", "stranger")))
		cancel()
		if err != nil {
			break // no more connections, or the server is down
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

// crashBackend kills the backend of a random candidate.
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
			return nil // it has already ended
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

// fillDisk fills the file system of the write-ahead log, and then writes some log.
func (n *nemesis) fillDisk(ctx context.Context) (healing, string, error) {
	ballast := filepath.Join(n.stage.logs[n.stage.primary], "ballast")
	if err := fill(ballast); err != nil {
		return nil, "", err
	}
	down := false
	err := n.severing(func() error {
		for range 200 { // recycled segments must be used up first
			if err := n.stage.primary.Exec(ctx, "SELECT pg_logical_emit_message(false, 'torture', repeat('x', 1000000))"); err != nil {
				down = true
				break
			}
		}
		return context.Cause(ctx)
	})
	if !down && err == nil {
		err = errors.New("the server kept running with a full log file system")
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

// fill writes to a file until no space is left.
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

// unheard is how long no server is there at least: who is told that the host has died stops leading meanwhile.
const unheard = 300 * time.Millisecond

// loseHost ends the server as the death of its host does, while a candidate behind a proxy leads: its
// connection stays silent, and so it leads on. Others are told by their kernel. There is a server again
// at once, so that the next leader comes early.
func (n *nemesis) loseHost(ctx context.Context) (healing, string, error) {
	leader, token := n.Leader()
	for range 10 {
		if leader == nil || behindProxy(n, leader) || leader.Send(fleet.Resign) != nil || fleet.Pause(ctx, 2*fleet.Retry) != nil {
			break
		}
		leader, token = n.Leader()
	}
	if leader == nil || !behindProxy(n, leader) {
		return nil, "nobody", context.Cause(ctx)
	}
	for _, proxy := range n.stage.proxies {
		proxy.Forget()
	}
	died := history.Event{At: history.Now(), Kind: history.Died, Process: leader.Name, Token: token, Took: fleet.Grace}
	if n.stage.lockDelay {
		died.Took = 0
	}
	n.Log.Add(died)
	if err := errors.Join(n.stage.primary.Kill(), fleet.Pause(ctx, unheard)); err != nil {
		return nil, "", err
	}
	if n.rnd.IntN(2) == 0 {
		return func(context.Context) error { // its new kernel knows none of the connections
			for _, proxy := range n.stage.proxies {
				proxy.ResetForgotten()
			}
			return nil
		}, leader.Name, n.stage.primary.Resume(ctx)
	}
	old, err := n.stage.promote(ctx)
	if err != nil {
		return nil, "", err
	}
	return func(ctx context.Context) error { return n.stage.replace(ctx, old) }, leader.Name + ", failover", n.Move()
}

// splitPrimary leaves the leaders connected to the old primary. All others are disconnected
// from it and connect to the new one.
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

func (n *nemesis) blackHole(m *fleet.Member) (healing, error) {
	proxy := n.stage.proxies[m.ID] // a promotion replaces and closes it
	held := n.holding(m)
	proxy.BlackHole()
	return func(context.Context) error {
		proxy.Heal()
		held(0)
		return nil
	}, nil
}

func (n *nemesis) slowDown(m *fleet.Member) (healing, error) {
	proxy := n.stage.proxies[m.ID]
	latency := time.Duration(n.rnd.Int64N(int64(fleet.Lease / 2)))
	held := n.holding(m)
	proxy.Slow(latency, latency/4)
	return func(context.Context) error {
		proxy.Heal()
		held(latency + latency/4) // what the proxy has read is on its way
		return nil
	}, nil
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
	return nil, "", n.severing(func() error { return n.stage.restartBouncers(ctx) })
}

// breaks breaks one candidate's link. The link may be gone when it is healed.
func breaks(inject, heal func(*link) error) func(*nemesis, context.Context) (healing, string, error) {
	return hits(withLink, func(n *nemesis, m *fleet.Member) (healing, error) {
		held := n.holding(m)
		broke := time.Now()
		return func(context.Context) error {
			if n.Members[m.ID] != m {
				return nil
			}
			defer func() { held(time.Since(broke) + retransmission) }() // TCP sends again after pauses that double
			return heal(n.stage.links[m.Name])
		}, inject(n.stage.links[m.Name])
	})
}

// retransmission is more than the first pause of TCP before it sends again.
const retransmission = time.Second

// holding records, when the returned function is called, that what the server says to a
// candidate was held back from now until then, or lost, and for a while after.
func (n *nemesis) holding(m *fleet.Member) (held func(after time.Duration)) {
	at := history.Now()
	return func(after time.Duration) {
		n.Log.Add(history.Event{Process: m.Name, At: at, Kind: history.Held, Took: history.Now().Sub(at) + after})
	}
}
