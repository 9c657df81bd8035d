package measure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pgelector/pgelector/bench/internal/child"
	"github.com/pgelector/pgelector/bench/internal/results"
	"github.com/pgelector/pgelector/bench/internal/servers"
	"github.com/pgelector/pgelector/bench/internal/systems"
)

const (
	mistaken = 20 // leaders, each in a process of its own
	stall    = 3 * time.Second
	stalls   = 20 * time.Second // from one to the next
)

var (
	prone   = []string{systems.DefaultPgx, systems.DefaultPq, systems.River, systems.Etcd}
	strains = []child.Strain{child.Quota, child.Busy, child.Collector, child.Disk}
)

func (r *run) mistakeSeconds() float64 {
	return r.plan.Minutes * 60 * float64(len(r.prone())*len(strains))
}

// prone returns the systems whose mistakes are counted.
func (r *run) prone() []systems.System {
	return slices.DeleteFunc(r.plan.systems(), func(s systems.System) bool { return !slices.Contains(prone, s.Name) })
}

// mistakes counts the terms that leaders lose under each strain, one system after the other.
func (r *run) mistakes(ctx context.Context) error {
	disk, err := newDisk(ctx)
	if err != nil {
		r.progress.skipped(fmt.Errorf("%s: %w", child.Disk, err))
	} else {
		defer disk.remove()
	}
	for _, strain := range strains {
		if strain == child.Disk && disk == nil {
			continue
		}
		for _, s := range r.prone() {
			m := results.Mistakes{System: s.Name, Strain: string(strain), Leaders: mistaken}
			f := &fleet{servers: r.servers, system: s, strain: strain, lasts: time.Duration(r.plan.Minutes * float64(time.Minute))}
			if strain == child.Disk {
				f.servers, f.disk = disk.servers, disk
			}
			lost, err := f.run(ctx)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				m.Error = err.Error()
				r.progress.skipped(err)
			}
			m.Lost, m.Hours = lost, mistaken*f.lasts.Hours()
			r.add(func(all *results.Results) { all.Mistakes = append(all.Mistakes, m) })
			r.progress.done(r.plan.Minutes*60, fmt.Sprintf("%s, %s: %d terms lost", s.Name, strain, lost))
		}
	}
	return nil
}

// A fleet is many leaders under one strain.
type fleet struct {
	servers *servers.Servers
	system  systems.System
	strain  child.Strain
	lasts   time.Duration
	disk    *disk
}

// run returns how many terms were lost.
func (f *fleet) run(ctx context.Context) (lost int, err error) {
	var leaders []*child.Child
	var release []func()
	defer func() { // once the processes have ended
		for _, f := range release {
			f()
		}
	}()
	for range mistaken {
		g := group{servers: f.servers, system: f.system, elections: 1}
		defer g.stop()
		if err := g.startLeader(ctx); err != nil {
			return 0, err
		}
		leaders = append(leaders, g.leader)
	}
	began := systems.Now()
	for _, c := range leaders {
		if f.strain == child.Quota {
			f, err := limitCPU(c.PID)
			if err != nil {
				return 0, err
			}
			release = append(release, f)
		}
		c.Endure(f.strain)
	}
	if err := f.wait(ctx); err != nil {
		return 0, err
	}
	for _, c := range leaders {
		lost += c.Count(began, systems.Lost, systems.Resigning)
		if failed, ok := c.After(systems.Failed, 0); ok {
			return lost, fmt.Errorf("%s: %s", f.system.Name, failed.Error)
		}
	}
	return lost, nil
}

// wait waits until the time is over. Meanwhile it stalls the disk, if there is one.
func (f *fleet) wait(ctx context.Context) error {
	if f.disk == nil {
		return sleep(ctx, f.lasts)
	}
	for end := time.Now().Add(f.lasts); time.Now().Before(end); {
		if err := f.disk.stall(ctx, stall); err != nil {
			return err
		}
		if err := sleep(ctx, min(stalls-stall, time.Until(end))); err != nil {
			return err
		}
	}
	return nil
}
