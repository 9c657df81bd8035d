package sqlmock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// A template for tests of your code: a service, its elector and their pool, without a database and
// without waiting. Copy this file and helpers_test.go.

// An outbox publishes what other transactions have written, about each second, in the
// one process that leads.
type outbox struct {
	pool      *sql.DB
	leader    *elector.Elector
	published []string
}

func (o *outbox) run(ctx context.Context) error {
	return o.leader.Run(ctx, func(ctx context.Context, term *elector.Term) error {
		for {
			if err := o.publishNext(ctx, term); err != nil {
				return err
			}
			select {
			case <-time.After(1200 * time.Millisecond):
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// publishNext guards its update with the token, so that a leader that was frozen for too long
// changes nothing.
func (o *outbox) publishNext(ctx context.Context, term *elector.Term) error {
	var message string
	err := o.pool.QueryRowContext(ctx,
		"UPDATE outbox SET sent = true, token = $1 WHERE id = (SELECT min(id) FROM outbox WHERE NOT sent) AND token <= $1 RETURNING message",
		term.Token()).Scan(&message)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil && ctx.Err() != nil:
		return nil // the term has ended, and Run knows why
	case err == nil:
		o.published = append(o.published, message)
	}
	return err
}

// expectMessage expects the service's own statement.
func expectMessage(mock sqlmock.Sqlmock, token int64, message string) {
	mock.ExpectQuery("UPDATE outbox").WithArgs(token).WillReturnRows(sqlmock.NewRows([]string{"message"}).AddRow(message))
}

func newOutbox(t *testing.T) (*outbox, sqlmock.Sqlmock, *hookstest.Recorder) {
	pool, mock := newMock(t)
	leader, rec := newElector(t, pool)
	return &outbox{pool: pool, leader: leader}, mock, rec
}

func TestTheOutboxPublishesWhileItLeadsAndResignsAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, mock, rec := newOutbox(t)
		expectServerCheck(mock)
		expectBusy(mock, 300, "web-2") // another process leads at first
		expectElection(mock, 745)
		expectMessage(mock, 745, "one")
		expectMessage(mock, 745, "two")
		expectResign(mock)

		ctx, shutdown := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- o.run(ctx) }()
		if _, err := hookstest.Wait[hooks.Elected](t.Context(), rec, nil); err != nil {
			t.Error(err)
		}
		time.Sleep(1500 * time.Millisecond)
		shutdown()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if want := []string{"one", "two"}; !slices.Equal(o.published, want) {
			t.Errorf("published %q, want %q", o.published, want)
		}
	})
}

func TestTheOutboxGoesOnInANewTermAfterTheServerRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, mock, rec := newOutbox(t)
		expectServerCheck(mock)
		expectElection(mock, 745)
		expectMessage(mock, 745, "one")
		expectMessage(mock, 745, "two")
		query(mock, "Ping").WillReturnError(driver.ErrBadConn) // the heartbeat, after 2 s
		expectServerCheck(mock)
		expectElection(mock, 746)
		expectMessage(mock, 746, "three")
		expectResign(mock)

		ctx, shutdown := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer shutdown()
		if err := o.run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if want := []string{"one", "two", "three"}; !slices.Equal(o.published, want) {
			t.Errorf("published %q, want %q", o.published, want)
		}
		if lost := rec.Demoted()[0]; lost.Reason != hooks.SessionLost || !errors.Is(lost.Err, driver.ErrBadConn) {
			t.Errorf("demoted: %+v", lost)
		}
	})
}
