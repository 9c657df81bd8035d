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
