// Package idle takes connections of a pool whose idle connections share a fate: a NAT that forgot them, a host that died or a
// laptop that slept has made all of them silent, or all lead to a server that is a standby by now, while a new connection works.
// Asking one idle connection after another would cost a timeout for each, and database/sql has no way to ask for a new connection
// while it has idle ones. So once one idle connection did not answer, one attempt of the pool takes all of them at once, and a new
// one, and uses the first that answers as a primary.
package idle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// AnswerWithin is the longest time that a connection gets to answer its first question.
const AnswerWithin = 10 * time.Second

// ErrSilent is returned, and reported, when idle connections did not answer.
var ErrSilent = errors.New("elector: idle connections of the pool do not answer: does something on the way forget them (a NAT, a firewall), or did a host die or sleep? " +
	"Set SetConnMaxIdleTime below the time after which they are forgotten, and tcp_user_timeout in the connection string")

// Silent returns the error of a connection that has not answered its first question within that time. It wraps ErrSilent, and
// leaves out the text of ErrSilent: the connection may be a new one.
func Silent(within time.Duration) error { return silent{within} }

type silent struct{ within time.Duration }

func (s silent) Error() string      { return fmt.Sprintf("%v within %v", pgerr.ErrNoAnswer, s.within) }
func (silent) Unwrap() error        { return pgerr.ErrNoAnswer }
func (silent) Is(target error) bool { return target == ErrSilent }

// suspects are the pools whose idle connections are suspected. A pool is here until one attempt has taken them all.
var suspects = struct {
	sync.Mutex
	of map[*sql.DB]*attempt
}{of: map[*sql.DB]*attempt{}}

// An attempt takes all idle connections of a pool at once. A pool has one such attempt at a time.
type attempt struct{ turn chan struct{} }

// Suspect records that an idle connection of the pool did not answer, or answered as a standby.
func Suspect(pool *sql.DB) {
	suspects.Lock()
	defer suspects.Unlock()
	if suspects.of[pool] == nil {
		suspects.of[pool] = &attempt{turn: make(chan struct{}, 1)}
	}
}

func suspected(pool *sql.DB) *attempt {
	suspects.Lock()
	defer suspects.Unlock()
	return suspects.of[pool]
}

func (a *attempt) end(pool *sql.DB) {
	suspects.Lock()
	defer suspects.Unlock()
	if suspects.of[pool] == a {
		delete(suspects.of, pool)
	}
}

// Take is pin.Take, unless the pool is suspected. Then Take asks all idle connections and, if the pool has room, a new one at the
// same time, and returns the first that answers as a primary within the time answer. The others go back to the pool when they
// answer, or are closed. Of several calls on one pool one does that, and the others wait for it. report receives what was found.
func Take(ctx context.Context, pool *sql.DB, within, answer time.Duration, report func(error)) (c *pin.Conn, late bool, err error) {
	a := suspected(pool)
	if a == nil {
		return one(ctx, pool, within, answer)
	}
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	if suspected(pool) != a { // another call has taken them meanwhile
		return one(ctx, pool, within, answer)
	}
	defer a.end(pool)
	c, err = first(ctx, pool, within, answer, report)
	return c, false, err
}

// one takes one connection. pgx asks an idle connection whether it lives before the pool lends it: if that takes long, the
// connection is silent.
func one(ctx context.Context, pool *sql.DB, within, answer time.Duration) (c *pin.Conn, late bool, err error) {
	if pool.Stats().Idle == 0 {
		return pin.Take(ctx, pool, within)
	}
	within = min(within, answer)
	c, late, err = pin.Take(ctx, pool, within)
	if late && pool.Stats().OpenConnections > 0 {
		return nil, false, fmt.Errorf("%w: %w within %v: %w", ErrSilent, pgerr.ErrNoAnswer, within, err)
	}
	return c, late, err
}

// A reply is what one connection said.
type reply struct {
	conn *pin.Conn
	err  error
}

// first returns the connection that answers first.
func first(ctx context.Context, pool *sql.DB, within, answer time.Duration, report func(error)) (*pin.Conn, error) {
	stats := pool.Stats()
	n := max(stats.Idle, 1)
	if stats.Idle > 0 && (stats.MaxOpenConnections == 0 || stats.OpenConnections < stats.MaxOpenConnections) {
		n++ // without room it would stand in the way of others who wait for a connection
	}
	replies, over := make(chan reply), make(chan struct{})
	asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer time.AfterFunc(pin.CloseGrace, cancel) // others that live have the time to answer, and go back
	defer close(over)
	for range n {
		go ask(asking, pool, within, answer, replies, over)
	}
	var failed error
	for range n {
		select {
		case r := <-replies:
			if r.err == nil {
				if failed != nil {
					report(failed)
				}
				return r.conn, nil
			}
			if failed == nil || errors.Is(failed, pgerr.ErrServerReadOnly) {
				failed = r.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, failed
}

// ask takes one connection, asks it who it is, and replies. If nobody wants the reply any more, the connection goes back.
func ask(ctx context.Context, pool *sql.DB, within, answer time.Duration, replies chan<- reply, over <-chan struct{}) {
	conn, _, err := pin.Take(ctx, pool, within)
	if err == nil {
		err = isPrimary(ctx, conn, answer)
	}
	r := reply{conn, err}
	select {
	case replies <- r:
		if err == nil {
			return
		}
	case <-over:
	}
	switch {
	case conn == nil:
	case err == nil:
		conn.GiveBack()
	default:
		conn.Discard(true, true)
	}
}

// isPrimary returns nil if a primary answers on the connection in time.
func isPrimary(ctx context.Context, conn *pin.Conn, answer time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answer, fmt.Errorf("%w: %w within %v", ErrSilent, pgerr.ErrNoAnswer, answer))
	defer cancel()
	var who db.WhoAnswersRow
	answered, err := conn.Call(ctx, func(ctx context.Context, q *db.Queries) (err error) {
		who, err = q.WhoAnswers(ctx)
		return err
	}, nil)
	switch {
	case err != nil:
		return err
	case answered && who.InRecovery:
		return pgerr.ErrServerReadOnly
	}
	return nil
}
