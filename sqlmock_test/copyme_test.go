package sqlmock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
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
	pool    *sql.DB
	leader  *elector.Elector
	publish func(ctx context.Context, message string) error
}

func (o *outbox) run(ctx context.Context) error {
	return o.leader.Run(ctx, func(ctx context.Context, term *elector.Term) error {
		for ctx.Err() == nil {
			if err := o.publishNext(ctx, term); err != nil && ctx.Err() == nil {
				slog.Warn("outbox not published, will try again", "error", err) // to return it would be to resign
			}
			select {
			case <-time.After(1200 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return nil
	})
}

// publishNext publishes a message, and then marks it, in a transaction of the term. So no message
// is lost, and only the leader marks one. One may be published twice: if the transaction fails
// after that, or by a leader that was frozen before it, after the next one has published it.
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
		if err := o.publish(ctx, message); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE outbox SET sent = true WHERE id = $1", id)
		return err
	})
}

// expectMessage expects that the service reads a message.
func expectMessage(mock sqlmock.Sqlmock, id int64, message string) {
	mock.ExpectQuery("SELECT id, message FROM outbox").WillReturnRows(row(id, message))
}

// expectSent expects that it marks the message.
func expectSent(mock sqlmock.Sqlmock, id int64) {
	mock.ExpectExec("UPDATE outbox").WithArgs(id).WillReturnResult(sqlmock.NewResult(0, 1))
	expectCommit(mock)
}

// A broker is where the messages go. It fails once with err, if that is not nil.
type broker struct {
	received []string
	err      error
}

func (b *broker) publish(_ context.Context, message string) error {
	if err := b.err; err != nil {
		b.err = nil
		return err
	}
	b.received = append(b.received, message)
	return nil
}

func newOutbox(t *testing.T) (*outbox, *broker, sqlmock.Sqlmock, *hookstest.Recorder) {
	pool, mock := newMock(t)
	leader, rec := newElector(t, pool)
	b := &broker{}
	return &outbox{pool: pool, leader: leader, publish: b.publish}, b, mock, rec
}

func TestTheOutboxPublishesWhileItLeadsAndResignsAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, b, mock, rec := newOutbox(t)
		expectServerCheck(mock)
		expectBusy(mock, 300, "web-2") // another process leads at first
		expectElection(mock, 745)
		expectFirstInTx(mock)
		expectMessage(mock, 1, "one")
		expectSent(mock, 1)
		expectInTx(mock)
		expectMessage(mock, 2, "two")
		expectSent(mock, 2)
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
		if want := []string{"one", "two"}; !slices.Equal(b.received, want) {
			t.Errorf("published %q, want %q", b.received, want)
		}
	})
}

func TestTheOutboxPublishesAgainWhatItCouldNotPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, b, mock, _ := newOutbox(t)
		b.err = errors.New("the broker is full")
		expectServerCheck(mock)
		expectElection(mock, 745)
		expectFirstInTx(mock)
		expectMessage(mock, 1, "one")
		expectRollback(mock)
		expectInTx(mock)
		expectMessage(mock, 1, "one")
		expectSent(mock, 1)
		expectResign(mock)

		ctx, shutdown := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer shutdown()
		if err := o.run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if want := []string{"one"}; !slices.Equal(b.received, want) {
			t.Errorf("published %q, want %q", b.received, want)
		}
	})
}

func TestTheOutboxGoesOnInANewTermAfterTheServerRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, b, mock, rec := newOutbox(t)
		expectServerCheck(mock)
		expectElection(mock, 745)
		expectFirstInTx(mock)
		expectMessage(mock, 1, "one")
		expectSent(mock, 1)
		expectInTx(mock)
		expectMessage(mock, 2, "two")
		expectSent(mock, 2)
		query(mock, "Ping").WillReturnError(driver.ErrBadConn) // the heartbeat, after 2 s
		expectServerCheck(mock)
		expectElection(mock, 746)
		expectFirstInTx(mock)
		expectMessage(mock, 3, "three")
		expectSent(mock, 3)
		expectResign(mock)

		ctx, shutdown := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer shutdown()
		if err := o.run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if want := []string{"one", "two", "three"}; !slices.Equal(b.received, want) {
			t.Errorf("published %q, want %q", b.received, want)
		}
		if lost := rec.Demoted()[0]; lost.Reason != hooks.SessionLost || !errors.Is(lost.Err, driver.ErrBadConn) {
			t.Errorf("demoted: %+v", lost)
		}
	})
}
