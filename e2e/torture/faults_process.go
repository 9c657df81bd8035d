//go:build linux

package main

import (
	"context"
	"syscall"

	"github.com/pgelector/pgelector/e2e/history"
)

// healing is what ends a fault.
type healing = func(context.Context) error

func (n *nemesis) killProcess(ctx context.Context) (healing, string, error) {
	m := n.victim(ctx)
	if m == nil {
		return nil, "", nil
	}
	n.kill(m)
	return nil, m.Name, nil
}

// freezeProcess claims something of the thaw only if the process led, and stood
// still for longer than its lease allows.
func (n *nemesis) freezeProcess(ctx context.Context) (healing, string, error) {
	m := n.victim(ctx)
	if m == nil {
		return nil, "", nil
	}
	leader, token := n.leader()
	at := history.Now()
	n.log.Add(history.Event{Process: m.Name, At: at, Kind: history.Frozen, Token: token})
	m.signal(syscall.SIGSTOP)
	return func(context.Context) error {
		thaw := history.Event{Process: m.Name, At: history.Now(), Kind: history.Thawed}
		if m == leader && thaw.At.Sub(at) > grace {
			thaw.Token = token
		}
		n.log.Add(thaw)
		m.signal(syscall.SIGCONT)
		return nil
	}, m.Name, nil
}

func (n *nemesis) resignTerm(context.Context) (healing, string, error) {
	m, _ := n.leader()
	if m == nil {
		return nil, "", nil
	}
	return nil, m.Name, m.tell(cmdResign)
}

func (n *nemesis) leaveSeat(ctx context.Context) (healing, string, error) {
	m := n.victim(ctx)
	if m == nil {
		return nil, "", nil
	}
	n.leavers = append(n.leavers, m)
	return nil, m.Name, nil
}
