package examples

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// OutboxTable creates the table to which other transactions add messages. A published message is removed.
const OutboxTable = `CREATE TABLE IF NOT EXISTS outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL,
	tries integer NOT NULL DEFAULT 0, try_at timestamptz NOT NULL DEFAULT now(), set_aside text);
CREATE INDEX IF NOT EXISTS outbox_waiting ON outbox (id) WHERE set_aside IS NULL`

// Message is a row of the outbox.
type Message struct {
	ID   int64
	Body string
}

// ErrUnavailable is for Publish to wrap when it can publish nothing now: that is no fault of the message.
var ErrUnavailable = errors.New("outbox: the receiver is unavailable")

// Outbox publishes messages by ascending id: a message follows those that were committed before it was inserted.
// A message that fails or panics is tried again, and holds up the later ones. After Tries it is set aside, logged as an
// error, and the later ones go on. To give it back: UPDATE outbox SET set_aside = NULL, tries = 0.
// What Publish writes with tx is written once and inside the term. What it sends elsewhere may be sent again: send the
// id too, so that the receiver can ignore repetitions, or the token, so that it can refuse an older leader.
type Outbox struct {
	Pool     *sql.DB
	Publish  func(ctx context.Context, tx *sql.Tx, m Message) error
	Interval time.Duration // between two looks, if nothing is due
	Timeout  time.Duration // of one Publish; less than a lease, after which the server ends the transaction
	Pause    time.Duration // before the next try, doubled by each try, up to 64 times
	Tries    int
}

// Lead is for elector.Elector.Run. It logs a failure and goes on, because to return is to resign.
func (o Outbox) Lead(ctx context.Context, term *elector.Term) error {
	if o.Interval <= 0 || o.Timeout <= 0 || o.Pause <= 0 || o.Tries <= 0 {
		return errors.New("outbox: a field is missing")
	}
	for ctx.Err() == nil {
		if !o.next(ctx, term) {
			select {
			case <-time.After(o.Interval):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// next publishes and removes the first message in one transaction. If that fails, another one records the failure.
func (o Outbox) next(ctx context.Context, term *elector.Term) (published bool) {
	var m, tries = Message{}, 0
	err := term.InTx(ctx, o.Pool, nil, func(tx *sql.Tx) (err error) {
		if err := tx.QueryRowContext(ctx, `DELETE FROM outbox WHERE id = (SELECT id FROM outbox WHERE set_aside IS NULL ORDER BY id LIMIT 1)
			AND try_at <= now() RETURNING id, body, tries`).Scan(&m.ID, &m.Body, &tries); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, o.Timeout)
		defer func() {
			cancel()
			if p := recover(); p != nil { // else this message ends one process after the other
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		return o.Publish(ctx, tx, m)
	})
	if err == nil || ctx.Err() != nil || m.ID == 0 && errors.Is(err, sql.ErrNoRows) {
		return err == nil
	}
	level, setAside := slog.LevelWarn, any(nil)
	if m.ID > 0 && !errors.Is(err, ErrUnavailable) {
		if tries++; tries >= o.Tries {
			level, setAside = slog.LevelError, fmt.Sprintf("%+q", err) // any encoding has it
		}
	}
	recorded := term.InTx(ctx, o.Pool, nil, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE outbox SET tries = $2, try_at = now() + $3 * interval '1 microsecond', set_aside = $4 WHERE id = $1", m.ID, tries, o.Pause.Microseconds()<<min(tries, 6), setAside)
		return err
	})
	slog.Log(ctx, level, "outbox: not published", "id", m.ID, "tries", tries, "set aside", setAside != nil, "error", err, "recorded", recorded)
	return false
}
