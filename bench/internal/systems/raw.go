package systems

import (
	"context"
	"database/sql"
	"time"
)

// reconnect is how soon the raw waiter tries again when the server is away.
const reconnect = 5 * time.Millisecond

func raw(driver, label string) System {
	return System{
		Name:     "raw lock, " + label,
		Settings: "pg_advisory_lock on a dedicated connection, nothing around it; reconnects every 5 ms",
		For:      "The physical limit: no check of the grant, no token, no lease, and a lost session goes unnoticed.",
		Quick:    []Fault{Resign, Kill, Terminate},
		Phase:    50 * time.Millisecond,
		Cap:      30 * time.Second,
		Never:    noLease(),
		Blind:    "it does not look",
		Run: func(ctx context.Context, env Env, out *Reporter) error {
			pool, err := open(driver, env.DSN)
			if err != nil {
				return err
			}
			out.Emit(Ready)
			for {
				if done := rawOnce(ctx, pool, env, out); done {
					return nil
				}
				time.Sleep(reconnect)
			}
		},
	}
}

// rawOnce waits for the lock, and holds it until it is to resign. It does not notice a loss.
func rawOnce(ctx context.Context, pool *sql.DB, env Env, out *Reporter) bool {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return false
	}
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", lockKey(env.Election)); err != nil {
		_ = conn.Close()
		return false
	}
	out.Leading(always)
	if resigned(ctx, env, nil, out) {
		_, _ = conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", lockKey(env.Election))
	}
	return true
}

func noLease() map[Fault]string {
	const why = "no lease: the lock is held for as long as the kernel keeps the connection"
	return map[Fault]string{Freeze: why, BlackHole: why}
}

// survives is why a terminated backend ends no leadership.
const survives = "leadership survives: a lease outlives its connection"
