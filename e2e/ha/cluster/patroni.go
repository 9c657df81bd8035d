//go:build unix

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgelector/pgelector/e2e/sandbox"
)

// status is Patroni's report about a member.
type status struct {
	Name     string `json:"name"`
	Role     string `json:"role"`
	State    string `json:"state"`
	Timeline int64  `json:"timeline"`
	Lag      any    `json:"lag"` // a number, or "unknown"
}

var client = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// ask sends a request to the member's Patroni.
func (m *Member) ask(ctx context.Context, method, path, body string) (string, error) {
	said, err := request(ctx, method, "http://"+address(m.rest)+path, body)
	if err != nil {
		err = fmt.Errorf("cluster: %s: %w", m.Name, err)
	}
	return said, err
}

func request(ctx context.Context, method, url, body string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, url, response.Status, said)
	}
	return string(said), err
}

// askAny sends a request to the members' Patronis, one after the other, until one succeeds.
func (c *Cluster) askAny(ctx context.Context, method, path, body string) (said string, err error) {
	for _, m := range c.Members {
		if said, err = m.ask(ctx, method, path, body); err == nil {
			break
		}
	}
	return said, err
}

// members returns Patroni's report about all members, the leader first.
func (c *Cluster) members(ctx context.Context) ([]status, error) {
	said, err := c.askAny(ctx, http.MethodGet, "/cluster", "")
	if err != nil {
		return nil, err
	}
	var cluster struct{ Members []status }
	if err := json.NewDecoder(bytes.NewBufferString(said)).Decode(&cluster); err != nil {
		return nil, fmt.Errorf("cluster: Patroni says %q: %w", said, err)
	}
	for i, one := range cluster.Members {
		if strings.Contains(one.Role, "leader") {
			cluster.Members[0], cluster.Members[i] = one, cluster.Members[0]
			return cluster.Members, nil
		}
	}
	return nil, fmt.Errorf("cluster: there is no leader: %s", said)
}

// leads returns nil if PostgreSQL is a primary.
func (m *Member) leads(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, client.Timeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, "postgres://postgres@"+m.Addr()+"/postgres?sslmode=disable&target_session_attrs=read-write")
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// AwaitPrimary waits for a member that is the primary according to both its Patroni and its PostgreSQL, and
// none of the others. On a busy machine the answer of one that is may come too late.
func (c *Cluster) AwaitPrimary(ctx context.Context, others ...*Member) (found *Member, err error) {
	err = c.await(ctx, "a primary", func(ctx context.Context) (err error) {
		found, err = c.other(ctx, others...)
		return err
	})
	return found, err
}

// other asks once for a primary that is none of the others.
func (c *Cluster) other(ctx context.Context, others ...*Member) (*Member, error) {
	var errs []error
	for _, m := range c.Members {
		if slices.Contains(others, m) {
			continue
		}
		_, err := m.ask(ctx, http.MethodGet, "/primary", "")
		if err == nil {
			err = m.leads(ctx) // Patroni may not have noticed a crash yet
		}
		if err == nil {
			return m, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("cluster: no member is the primary: %w", errors.Join(errs...))
}

// AwaitHealthy waits until there is a primary, every other member streams from it, and in
// synchronous mode one of them is the synchronous standby. After a while it does what an
// operator would do. It reinitializes members that do not stream. It switches synchronous
// replication off and on if Patroni names no synchronous standby: after a freeze, Patroni
// 3.0.2 may report forever that the "Synchronous replication key" was "updated by someone
// else".
func (c *Cluster) AwaitHealthy(ctx context.Context) error {
	repair := time.Now().Add(3 * TTL)
	return c.await(ctx, "a healthy cluster", func(ctx context.Context) error {
		late := time.Now().After(repair)
		if late {
			repair = time.Now().Add(3 * TTL)
		}
		all, err := c.members(ctx)
		if err != nil {
			return err
		}
		if all[0].State != "running" {
			return fmt.Errorf("by Patroni: %+v", all)
		}
		well := true
		for _, m := range c.Members {
			if slices.ContainsFunc(all, func(one status) bool { return one.Name == m.Name && (one == all[0] || one.streams(all[0].Timeline)) }) {
				continue
			}
			well = false
			if late {
				c.Reinitialized = append(c.Reinitialized, m.Name)
				err = errors.Join(err, m.reinitialize())
			}
		}
		if !well {
			return errors.Join(fmt.Errorf("by Patroni: %+v", all), err)
		}
		synchronous, err := c.synchronous(ctx)
		if err != nil {
			return err
		}
		if synchronous && !slices.ContainsFunc(all, func(one status) bool { return one.Role == "sync_standby" }) {
			if late {
				err = c.replicateAnew(ctx)
			}
			return errors.Join(fmt.Errorf("no standby is synchronous: %+v", all), err)
		}
		_, err = c.other(ctx)
		return err
	})
}

// streams reports whether a standby streams from the primary of a timeline.
func (s status) streams(timeline int64) bool {
	lag, known := s.Lag.(float64)
	running := s.State == "running" || s.State == "streaming" // before and since Patroni 3.0.4
	return running && s.Timeline == timeline && known && lag <= 1<<20
}

// await calls ask until it succeeds.
func (c *Cluster) await(ctx context.Context, what string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var last error
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			var logs strings.Builder
			for _, m := range c.Members {
				fmt.Fprintf(&logs, "\n--- %s said:\n%s", m.Name, sandbox.Tail(m.logFile()))
			}
			return fmt.Errorf("cluster: waiting for %s: %w: %w%s", what, context.Cause(ctx), last, logs.String())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// synchronous reports whether the cluster replicates synchronously.
func (c *Cluster) synchronous(ctx context.Context) (bool, error) {
	said, err := c.askAny(ctx, http.MethodGet, "/config", "")
	if err != nil {
		return false, err
	}
	var config struct {
		Synchronous bool `json:"synchronous_mode"`
	}
	if err := json.Unmarshal([]byte(said), &config); err != nil {
		return false, fmt.Errorf("cluster: Patroni says %q: %w", said, err)
	}
	return config.Synchronous, nil
}

// replicateAnew makes Patroni choose the synchronous standby again.
func (c *Cluster) replicateAnew(ctx context.Context) error {
	for _, on := range []bool{false, true} {
		if err := c.configure(ctx, on); err != nil {
			return err
		}
		select {
		case <-time.After(3 * loop):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (c *Cluster) configure(ctx context.Context, synchronous bool) error {
	_, err := c.askAny(ctx, http.MethodPatch, "/config", fmt.Sprintf(`{"synchronous_mode": %t}`, synchronous))
	return err
}

// SetSynchronous switches synchronous replication on or off and waits until the cluster is
// healthy.
func (c *Cluster) SetSynchronous(ctx context.Context, on bool) error {
	if err := c.configure(ctx, on); err != nil {
		return err
	}
	return c.AwaitHealthy(ctx)
}

// Switchover makes Patroni switch over to a standby of its choice, and returns when it has.
func (c *Cluster) Switchover(ctx context.Context) error {
	from, err := c.AwaitPrimary(ctx)
	if err != nil {
		return err
	}
	return c.await(ctx, "a switchover", func(ctx context.Context) error {
		if _, err := c.other(ctx, from); err == nil {
			return nil
		}
		// A switchover may not be possible yet. Patroni answers only when it is done; the
		// client does not wait that long.
		_, refused := from.ask(ctx, http.MethodPost, "/switchover", fmt.Sprintf(`{"leader": %q}`, from.Name))
		_, err := c.other(ctx, from)
		return errors.Join(err, refused)
	})
}
