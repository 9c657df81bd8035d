//go:build linux

package main

import (
	"context"
	"syscall"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/history"
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
	return nil, m.Name, m.Tell(fleet.Resign)
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
