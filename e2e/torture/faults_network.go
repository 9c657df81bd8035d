//go:build linux

package main

import (
	"context"
	"time"

	"github.com/pgelector/pgelector/e2e/fleet"
)

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
