//go:build unix

package examples_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/examples"
	"github.com/pgelector/pgelector/hooks"
)

// record publishes a message to a table, in the order of publication. The table accepts
// a message twice.
func record(by string) func(context.Context, *sql.Tx, examples.Message) error {
	return func(ctx context.Context, tx *sql.Tx, m examples.Message) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO published (id, by) VALUES ($1, $2)", m.ID, by)
		return err
	}
}

func prepare(t *testing.T, pool *sql.DB) {
	t.Helper()
	execute(t, pool, examples.OutboxTable)
	execute(t, pool, "CREATE TABLE published (place bigint GENERATED ALWAYS AS IDENTITY, id bigint, by text)")
}

func count(t *testing.T, pool *sql.DB) (n int) {
	t.Helper()
	check(t, pool.QueryRow("SELECT count(*) FROM published").Scan(&n))
	return n
}

// await waits until n messages are published.
func await(t *testing.T, pool *sql.DB, n int) {
	t.Helper()
	for deadline := time.Now().Add(timeout); count(t, pool) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d messages were published within %v", count(t, pool), n, timeout)
		}
	}
}

func TestTheOutboxIsPublishedOnceAndInOrderWhileLeadersChange(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		prepare(t, pool)
		candidates := map[string]candidate{}
		var stops []func() error
		for _, id := range []string{"first", "second"} {
			c := newCandidate(t, pool, id)
			candidates[id] = c
			stops = append(stops, inBackground(t, func(ctx context.Context) error {
				return c.Run(ctx, examples.PublishOutbox(pool, time.Millisecond, record(id)))
			}))
		}
		const rounds, messages = 8, 50
		for round := range rounds {
			for i := range messages {
				execute(t, pool, "INSERT INTO outbox (body) VALUES ($1)", fmt.Sprint("message ", round*messages+i))
				if i == messages/2 {
					endTerm(t, pool, candidates, round%2 == 0)
				}
			}
		}
		await(t, pool, rounds*messages)
		for _, stop := range stops {
			if err := stop(); !errors.Is(err, errStop) {
				t.Errorf("a candidate returned %v", err)
			}
		}
		var once, ordered bool
		check(t, pool.QueryRow(`SELECT count(*) = count(DISTINCT id), array_agg(id ORDER BY place) = array_agg(id ORDER BY id) FROM published`).
			Scan(&once, &ordered))
		if n := count(t, pool); !once || !ordered || n != rounds*messages {
			t.Errorf("%d of %d messages were published; each once: %v, in order: %v", n, rounds*messages, once, ordered)
		}
	})
}

// endTerm ends the leader's term: it terminates the backend or resigns.
func endTerm(t *testing.T, pool *sql.DB, candidates map[string]candidate, terminate bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, c := range candidates {
			term, leading := c.Term()
			if !leading {
				continue
			}
			if terminate {
				leader, err := c.Leader(soon(t))
				if errors.Is(err, elector.ErrNoLeader) {
					continue
				}
				check(t, err)
				execute(t, pool, "SELECT pg_terminate_backend($1)", leader.PID)
			} else {
				_ = term.Resign(soon(t)) // fails if the session is already lost
			}
			return
		}
	}
	t.Fatalf("no candidate led within %v", timeout)
}

func TestALeaderWhoseTermIsOverPublishesNothing(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		prepare(t, pool)
		c := newCandidate(t, pool, "first")
		began, goOn := make(chan struct{}), make(chan struct{})
		held := func(ctx context.Context, tx *sql.Tx, m examples.Message) error {
			close(began)
			<-goOn
			return record("first")(context.WithoutCancel(ctx), tx, m)
		}
		execute(t, pool, "INSERT INTO outbox (body) VALUES ('message')")
		inBackground(t, func(ctx context.Context) error {
			return c.Run(ctx, examples.PublishOutbox(pool, time.Millisecond, held))
		})
		receive(t, "the message is about to be published", began)
		term, _ := c.Term()
		resigned := make(chan error, 1)
		go func() { resigned <- term.Resign(soon(t)) }()
		<-term.Context().Done()
		close(goOn)
		check(t, receive(t, "the term ends", resigned))
		wait(t, c, func(e hooks.Demoted) bool { return e.Token == term.Token() })
		if n := count(t, pool); n != 0 {
			t.Errorf("%d messages were published after the term", n)
		}
	})
}
