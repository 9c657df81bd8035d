//go:build unix

package examples_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/examples"
)

// logged keeps what the examples log until the end of the test.
func logged(t *testing.T) func() string {
	t.Helper()
	var all must.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&all, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return all.String
}

// sent counts how often each message was sent to a receiver that is not in the database.
type sent struct {
	mu    sync.Mutex
	times map[int64]int
}

func (s *sent) add(id int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times[id]++
	return s.times[id]
}

func (s *sent) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.times)
}

func startOutbox(t *testing.T, o examples.Outbox) {
	t.Helper()
	c := newCandidate(t, o.Pool, "this")
	inBackground(t, func(ctx context.Context) error { return c.Run(ctx, o.Lead) })
}

func left(t *testing.T, pool *sql.DB) (waiting, setAside int) {
	t.Helper()
	check(t, pool.QueryRow("SELECT count(*) FILTER (WHERE set_aside IS NULL), count(set_aside) FROM outbox").Scan(&waiting, &setAside))
	return waiting, setAside
}

func TestARefusedMessageIsTriedAgainAndSetAsideAndTheOthersAreSentOnce(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		logs := logged(t)
		prepare(t, pool)
		execute(t, pool, "INSERT INTO outbox (body) SELECT 'message' FROM generate_series(1, 10)")
		got := sent{times: map[int64]int{}}
		startOutbox(t, outbox(pool, func(ctx context.Context, tx *sql.Tx, m examples.Message) error {
			if got.add(m.ID); m.ID == 6 {
				return errors.New("refused: caf\xe9 \x00") // no encoding has it
			}
			return record("this")(ctx, tx, m)
		}))
		await(t, pool, 9)
		waiting, setAside := left(t, pool)
		if want := "map[1:1 2:1 3:1 4:1 5:1 6:4 7:1 8:1 9:1 10:1]"; got.String() != want || waiting != 0 || setAside != 1 {
			t.Errorf("sent %v, %d wait, %d are set aside", &got, waiting, setAside)
		}
		eventually(t, "a line is logged", func() bool {
			return strings.Contains(logs(), `level=ERROR msg="outbox: not published" id=6 tries=4 "set aside"=true`)
		})
		execute(t, pool, "UPDATE outbox SET set_aside = NULL, tries = 0")
		eventually(t, "a message that is given back is tried", func() bool { return strings.Contains(got.String(), " 6:8 ") })
	})
}

func TestAMessageWhoseCommitFailsIsSetAside(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		logged(t)
		prepare(t, pool)
		execute(t, pool, "ALTER TABLE published ADD UNIQUE (body) DEFERRABLE INITIALLY DEFERRED")
		execute(t, pool, "INSERT INTO outbox (body) VALUES ('one'), ('one'), ('two')")
		startOutbox(t, outbox(pool, record("this")))
		await(t, pool, 2)
		if waiting, setAside := left(t, pool); waiting != 0 || setAside != 1 {
			t.Errorf("%d wait, %d are set aside", waiting, setAside)
		}
	})
}

// Else it would end each process that comes to lead.
func TestAMessageWhosePublicationPanicsIsSetAside(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		logs := logged(t)
		prepare(t, pool)
		execute(t, pool, "INSERT INTO outbox (body) VALUES ('poison'), ('two')")
		startOutbox(t, outbox(pool, func(ctx context.Context, tx *sql.Tx, m examples.Message) error {
			if m.Body == "poison" {
				panic("no such field")
			}
			return record("this")(ctx, tx, m)
		}))
		await(t, pool, 1)
		if waiting, setAside := left(t, pool); waiting != 0 || setAside != 1 || !strings.Contains(logs(), "panic: no such field") {
			t.Errorf("%d wait, %d are set aside", waiting, setAside)
		}
	})
}

func TestNoMessageIsSetAsideWhileTheReceiverIsAway(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		logged(t)
		prepare(t, pool)
		execute(t, pool, "INSERT INTO outbox (body) VALUES ('one'), ('two')")
		got := sent{times: map[int64]int{}}
		startOutbox(t, outbox(pool, func(ctx context.Context, tx *sql.Tx, m examples.Message) error {
			if got.add(m.ID) < 10 {
				return fmt.Errorf("%w: connection refused", examples.ErrUnavailable)
			}
			return record("this")(ctx, tx, m)
		}))
		await(t, pool, 2)
	})
}

func TestAPublishThatHangsHoldsUpTheOutboxForItsTimeoutOnly(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		logged(t)
		prepare(t, pool)
		execute(t, pool, "INSERT INTO outbox (body) VALUES ('one'), ('two')")
		o := outbox(pool, func(ctx context.Context, tx *sql.Tx, m examples.Message) error {
			if m.Body == "one" {
				_, err := tx.ExecContext(ctx, "SELECT pg_sleep(1000)")
				return err
			}
			return record("this")(context.WithoutCancel(ctx), tx, m)
		})
		o.Timeout = 10 * time.Millisecond
		startOutbox(t, o)
		await(t, pool, 1)
	})
}

func TestALookAtAnOutboxWithManyRowsSetAsideUsesItsIndex(t *testing.T) {
	overBoth(t, func(t *testing.T, pool *sql.DB) {
		logged(t)
		prepare(t, pool)
		execute(t, pool, "INSERT INTO outbox (body, set_aside) SELECT 'old', 'refused' FROM generate_series(1, 20000)")
		execute(t, pool, "ANALYZE outbox")
		startOutbox(t, outbox(pool, record("this")))
		execute(t, pool, "INSERT INTO outbox (body) VALUES ('new')")
		await(t, pool, 1)
		eventually(t, "the index is used", func() bool {
			var scans int
			check(t, pool.QueryRow("SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'outbox_waiting'").Scan(&scans))
			return scans > 0
		})
		var whole int
		check(t, pool.QueryRow("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'outbox'").Scan(&whole))
		if whole > 40000 { // to build the indexes, and for ANALYZE
			t.Errorf("%d rows were read without the index", whole)
		}
	})
}

func TestAnOutboxThatLacksAFieldIsAnError(t *testing.T) {
	for _, o := range []examples.Outbox{{Timeout: 1, Pause: 1, Tries: 1}, {Interval: 1, Pause: 1, Tries: 1}, {Interval: 1, Timeout: 1, Tries: 1}, {Interval: 1, Timeout: 1, Pause: 1}} {
		if err := o.Lead(t.Context(), nil); err == nil {
			t.Errorf("%+v leads", o)
		}
	}
}
