package examples

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// OutboxTable creates the table to which other transactions add messages.
const OutboxTable = `CREATE TABLE IF NOT EXISTS outbox (
	id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	body      text NOT NULL,
	published timestamptz
)`

// Message is a row of the outbox.
type Message struct {
	ID   int64
	Body string
}

// PublishOutbox publishes the messages in the outbox once per interval, by ascending id. So a
// message follows those that were committed before it was inserted, such as all earlier ones about
// a row that its transaction has locked. Transactions that ran side by side have no order.
//
// It logs a failure and tries again, because to return is to resign. A transaction that failed has
// changed nothing, and one whose outcome is unknown has marked its messages if it was committed.
//
// What publish writes with tx is written once and inside the term: a leader that was
// replaced can neither publish nor mark a message. What publish sends elsewhere is sent
// again if the commit fails. Send the id too, so that the receiver can ignore
// repetitions, or the term's token, so that it can refuse an older one (package fence).
func PublishOutbox(pool *sql.DB, interval time.Duration, publish func(context.Context, *sql.Tx, Message) error) func(context.Context, *elector.Term) error {
	return func(ctx context.Context, term *elector.Term) error {
		for ctx.Err() == nil {
			err := term.InTx(ctx, pool, nil, func(tx *sql.Tx) error { return publishAll(ctx, tx, publish) })
			if err != nil && ctx.Err() == nil { // InTx may fail before ctx ends
				slog.WarnContext(ctx, "outbox not published, will try again", "error", err)
			}
			select {
			case <-time.After(interval):
			case <-ctx.Done():
			}
		}
		return nil
	}
}

// publishAll publishes at most a hundred messages, so that no transaction takes long.
func publishAll(ctx context.Context, tx *sql.Tx, publish func(context.Context, *sql.Tx, Message) error) error {
	rows, err := tx.QueryContext(ctx, "SELECT id, body FROM outbox WHERE published IS NULL ORDER BY id LIMIT 100")
	if err != nil {
		return fmt.Errorf("read the outbox: %w", err)
	}
	defer rows.Close()
	var messages []Message
	for rows.Next() {
		var m Message
		if err := rows.Scan(&m.ID, &m.Body); err != nil {
			return fmt.Errorf("read the outbox: %w", err)
		}
		messages = append(messages, m)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read the outbox: %w", err)
	}
	for _, m := range messages {
		if err := publish(ctx, tx, m); err != nil {
			return fmt.Errorf("publish message %d: %w", m.ID, err)
		}
		if _, err := tx.ExecContext(ctx, "UPDATE outbox SET published = now() WHERE id = $1", m.ID); err != nil {
			return fmt.Errorf("mark message %d: %w", m.ID, err)
		}
	}
	return nil
}
