//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/pgcluster"
)

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
