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
	leadersEach = 20 // leaders, each in a process of its own
	stall       = 3 * time.Second
	stalls      = 20 * time.Second // from one to the next
)

var (
	counted = []string{systems.DefaultPgx, systems.DefaultPq, systems.River, systems.Etcd}
	strains = []child.Strain{child.Quota, child.Busy, child.Collector, child.Disk}
)

func (r *run) mistakeSeconds() float64 {
	return r.plan.Minutes * 60 * float64(len(r.systemsCounted())*len(strains))
}

// systemsCounted returns the systems whose mistakes are counted, and that the plan wants.
func (r *run) systemsCounted() []systems.System {
	return slices.DeleteFunc(r.plan.systems(), func(s systems.System) bool { return !slices.Contains(counted, s.Name) })
}

// mistakes counts the terms that leaders lose under each strain, one system after the other.
func (r *run) mistakes(ctx context.Context) error {
	for _, strain := range strains {
		on, disk := r.servers, (*disk)(nil)
		if strain == child.Disk {
			var err error
			if disk, err = newDisk(ctx); err != nil {
				r.progress.skipped(fmt.Errorf("%s: %w", strain, err))
				continue
			}
			defer disk.remove()
			on = disk.servers
		}
		for _, s := range r.systemsCounted() {
			f := &fleet{servers: on, disk: disk, system: s, strain: strain, lasts: time.Duration(r.plan.Minutes * float64(time.Minute))}
			m := results.Mistakes{System: s.Name, Strain: string(strain), Leaders: leadersEach, Hours: leadersEach * f.lasts.Hours()}
			var err error
			if m.Lost, err = f.run(ctx); ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				m.Error = err.Error()
				r.progress.skipped(err)
			}
			r.add(func(all *results.Results) { all.Mistakes = append(all.Mistakes, m) })
			r.progress.done(r.plan.Minutes*60, fmt.Sprintf("%s, %s: %d terms lost", s.Name, strain, m.Lost))
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
	for range leadersEach {
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
