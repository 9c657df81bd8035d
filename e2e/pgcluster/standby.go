//go:build unix

package pgcluster

import (
	"context"
	"fmt"
	"time"
)

// AddStandby starts a hot standby that streams from the cluster, and returns when it accepts connections.
// It has the same settings, is stopped by the cluster's Stop at the latest, and is a Cluster in every
// respect: it can be frozen, proxied, promoted, and have standbys of its own. Standbys have no replication
// slot: one that misses more than 128 MB of WAL cannot catch up.
func (c *Cluster) AddStandby(ctx context.Context) (*Cluster, error) {
	return c.derive(func(s *Cluster) error {
		if err := c.backUp(ctx, s); err != nil {
			return err
		}
		return s.firstBoot(ctx)
	})
}

// derive makes a cluster from this one, whose Stop stops it at the latest.
func (c *Cluster) derive(build func(*Cluster) error) (*Cluster, error) {
	derived, err := assemble(c.bin, c.settings, build)
	if err != nil {
		return nil, err
	}
	c.dependents = append(c.dependents, func() error {
		if derived.detached {
			return nil
		}
		return derived.Stop()
	})
	return derived, nil
}

// Detach makes a standby, promoted or not, independent of the cluster that it was
// made from: that one's Stop does not stop it any more, and the caller must. So it
// does with what Upgrade and DumpAndRestore return.
func (c *Cluster) Detach() { c.detached = true }

// Promote makes a standby a primary and returns when it has left recovery. It does nothing to the old
// primary.
func (c *Cluster) Promote(ctx context.Context) error {
	conn, err := c.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SELECT pg_promote(wait => false)"); err != nil {
		return fmt.Errorf("pgcluster: promote: %w", err)
	}
	for {
		var inRecovery bool
		if err := conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&inRecovery); err != nil {
			return fmt.Errorf("pgcluster: promote: %w", err)
		}
		if !inRecovery {
			return nil
		}
		select {
		case <-time.After(readyPoll):
		case <-ctx.Done():
			return fmt.Errorf("pgcluster: the standby is still in recovery: %w", context.Cause(ctx))
		}
	}
}
