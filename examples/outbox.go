package examples

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// OutboxTable is the table to which other transactions add messages.
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

// PublishOutbox publishes what is in the outbox, by ascending id, each time that
// every has passed. What fails is logged and tried again: a transaction that failed
// has changed nothing, and one that may or may not have been committed has marked
// what it published. To return would be to resign.
//
// What publish writes by tx is written once, and only inside the term: a leader
// that was replaced can neither publish nor mark a message, whatever it believes.
// What publish sends elsewhere may be sent again if the commit fails then, so send
// the id along, and have the receiver drop repetitions; or send the term's token
// too, and have it refuse an older one (package fence).
func PublishOutbox(pool *sql.DB, every time.Duration, publish func(context.Context, *sql.Tx, Message) error) func(context.Context, *elector.Term) error {
	return func(ctx context.Context, term *elector.Term) error {
		for ctx.Err() == nil {
			err := term.InTx(ctx, pool, nil, func(tx *sql.Tx) error { return publishAll(ctx, tx, publish) })
			if err != nil && ctx.Err() == nil { // InTx may know that the term is over before ctx does
				slog.WarnContext(ctx, "outbox not published, will try again", "error", err)
			}
			select {
			case <-time.After(every):
			case <-ctx.Done():
			}
		}
		return nil
	}
}

// publishAll publishes some hundred messages at most, so that no transaction is long.
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
