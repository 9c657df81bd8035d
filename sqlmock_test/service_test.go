package sqlmock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// A template for unit tests of a service with go-sqlmock: electortest plays the election, and the mock
// expects what the service itself sends. Copy this file.

// newPool returns the pool of a service, and the mock that gets the service's statements. Each statement that fails is
// told to report: t.Error, or t.Log if statements fail on purpose.
func newPool(t *testing.T, report func(...any)) (*sql.DB, sqlmock.Sqlmock, *electortest.Server) {
	db, mock, err := sqlmock.New()
	if err != nil {
		t.Fatal(err)
	}
	server := electortest.NewServer()
	server.Forward(db, report)
	t.Cleanup(func() {
		server.Close() // before the check: it rolls back what a lost connection left open
		mock.ExpectClose()
		_ = db.Close()
		if err := mock.ExpectationsWereMet(); err != nil {
			t.Error(err)
		}
	})
	return server.Open(), mock, server
}

// sweep removes expired rows every 30 s, in the one process that leads.
func sweep(ctx context.Context, pool *sql.DB) error {
	leader, err := elector.New(pool, "sweeper")
	if err != nil {
		return err
	}
	return leader.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
		for ctx.Err() == nil {
			if _, err := pool.ExecContext(ctx, "DELETE FROM sessions WHERE expired < $1", time.Now()); err != nil {
				slog.Warn("sweep failed, will try again", "error", err) // to return the error would be to resign
			}
			select {
			case <-time.After(30 * time.Second):
			case <-ctx.Done():
			}
		}
		return nil
	})
}

func TestTheSweeperSweepsEvery30Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, mock, _ := newPool(t, t.Error)
		for range 3 { // after 0, 30 and 60 s
			mock.ExpectExec("DELETE FROM sessions").WithArgs(sqlmock.AnyArg()).WillReturnResult(sqlmock.NewResult(0, 5))
		}
		ctx, stop := context.WithTimeout(t.Context(), 70*time.Second)
		defer stop()
		if err := sweep(ctx, pool); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestTheSweeperSweepsAgainAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, mock, _ := newPool(t, t.Log)
		mock.ExpectExec("DELETE FROM sessions").WillReturnError(errors.New("deadlock detected"))
		mock.ExpectExec("DELETE FROM sessions").WillReturnResult(sqlmock.NewResult(0, 5))
		ctx, stop := context.WithTimeout(t.Context(), 40*time.Second)
		defer stop()
		_ = sweep(ctx, pool)
	})
}

func TestTheSweeperWaitsWhileAnotherProcessLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, mock, server := newPool(t, t.Error)
		leader, err := elector.New(server.Open(), "sweeper")
		if err != nil {
			t.Fatal(err)
		}
		term, err := leader.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		mock.ExpectExec("DELETE FROM sessions").WithArgs(after{start.Add(time.Minute)}).WillReturnResult(sqlmock.NewResult(0, 5))
		time.AfterFunc(time.Minute, func() { _ = term.Resign(t.Context()) })
		ctx, stop := context.WithTimeout(t.Context(), 70*time.Second)
		defer stop()
		_ = sweep(ctx, pool)
	})
}

// An outbox publishes messages that other transactions have written.
type outbox struct {
	pool    *sql.DB
	publish func(message string) error
}

// publishNext publishes a message and marks it, in a transaction of the term.
func (o *outbox) publishNext(ctx context.Context, term *elector.Term) error {
	return term.InTx(ctx, o.pool, nil, func(tx *sql.Tx) error {
		var id int64
		var message string
		err := tx.QueryRowContext(ctx, "SELECT id, message FROM outbox WHERE NOT sent ORDER BY id LIMIT 1").Scan(&id, &message)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		if err := o.publish(message); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE outbox SET sent = true WHERE id = $1", id)
		return err
	})
}

// Without synctest time is real. The election takes no noticeable part of it.
func TestTheOutboxMarksWhatItPublished(t *testing.T) {
	pool, mock, _ := newPool(t, t.Error)
	mock.ExpectBegin()
	mock.ExpectQuery("SELECT id, message FROM outbox").WillReturnRows(sqlmock.NewRows([]string{"id", "message"}).AddRow(7, "hello"))
	mock.ExpectExec("UPDATE outbox").WithArgs(7).WillReturnResult(sqlmock.NewResult(0, 1))
	mock.ExpectCommit()

	leader, err := elector.New(pool, "outbox")
	if err != nil {
		t.Fatal(err)
	}
	var published string
	o := outbox{pool, func(message string) error { published = message; return nil }}
	if _, err := leader.TryRun(t.Context(), o.publishNext); err != nil || published != "hello" {
		t.Errorf("published %q: %v", published, err)
	}
}

func TestTheOutboxMarksNothingThatItCouldNotPublish(t *testing.T) {
	pool, mock, _ := newPool(t, t.Error)
	mock.ExpectBegin()
	mock.ExpectQuery("SELECT id, message FROM outbox").WillReturnRows(sqlmock.NewRows([]string{"id", "message"}).AddRow(7, "hello"))
	mock.ExpectRollback()

	leader, err := elector.New(pool, "outbox")
	if err != nil {
		t.Fatal(err)
	}
	term, err := leader.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("the broker is full")
	o := outbox{pool, func(string) error { return full }}
	if err := o.publishNext(t.Context(), term); !errors.Is(err, full) || !errors.Is(err, elector.ErrRolledBack) {
		t.Error(err)
	}
	if err := term.Resign(t.Context()); err != nil {
		t.Error(err)
	}
}

// A warmer fills a cache each minute, in every process that is asked while it leads.
func TestTheCacheIsWarmedOnlyByTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, mock, server := newPool(t, t.Error)
		mock.ExpectExec("REFRESH MATERIALIZED VIEW prices").WillReturnResult(sqlmock.NewResult(0, 0))
		leader, err := elector.New(pool, "warmer")
		if err != nil {
			t.Fatal(err)
		}
		if err := leader.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		warm := func() bool {
			ran, err := leader.RunIfLeader(t.Context(), func(ctx context.Context) error {
				_, err := pool.ExecContext(ctx, "REFRESH MATERIALIZED VIEW prices")
				return err
			})
			if err != nil {
				t.Error(err)
			}
			return ran
		}
		time.Sleep(time.Minute)
		if !warm() {
			t.Error("the leader warmed nothing")
		}
		server.Crash() // the term is lost, and nobody leads
		time.Sleep(time.Minute)
		if warm() {
			t.Error("a candidate that does not lead warmed the cache")
		}
		if err := leader.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// after matches a time that is not before another.
type after struct{ t time.Time }

func (a after) Match(v driver.Value) bool { at, ok := v.(time.Time); return ok && !at.Before(a.t) }
