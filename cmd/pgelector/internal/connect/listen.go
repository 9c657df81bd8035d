package connect

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/ask"
)

// Hears listens to a channel, whose name needs no quoting, and calls notify. It returns nil once a
// notification has arrived, and listens no more.
func (c *Conn) Hears(ctx context.Context, channel string, notify func(context.Context) error) error {
	return c.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		var heard atomic.Bool
		_ = conn.Raw(func(d any) error {
			if d, ok := d.(driver.Conn); ok && c.driver == PQ {
				pq.SetNotificationHandler(d, func(*pq.Notification) { heard.Store(true) })
			}
			return nil
		})
		if _, err := conn.ExecContext(ctx, "LISTEN "+channel); err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_, _ = conn.ExecContext(ctx, "UNLISTEN "+channel)
		}()
		if err := notify(ctx); err != nil {
			return err
		}
		if c.driver == PQ { // which reads a notification before the next answer
			return untilHeard(ctx, conn, &heard)
		}
		return conn.Raw(func(d any) error {
			_, err := d.(*stdlib.Conn).Conn().WaitForNotification(ctx)
			return err
		})
	})
}

func untilHeard(ctx context.Context, conn *sql.Conn, heard *atomic.Bool) error {
	for !heard.Load() {
		if _, err := conn.ExecContext(ctx, "SELECT"); err != nil {
			return err
		}
		if !ask.Sleep(ctx, 10*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return nil
}
