// Package unruly opens pools whose connections misbehave as those of some wrappers, tunnels and networks do.
// What the network itself does to a pool, a pgcluster.Proxy before the server does.
package unruly

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
)

// A Habit is how the connections of a pool misbehave.
type Habit string

const (
	None Habit = "none"

	// Of the net.Conn below the driver.
	Websocket  Habit = "websocket"  // a read deadline that fires during a Read closes it; one that has fired before fails the Read
	Closes     Habit = "closes"     // a read deadline that fires closes it, and the error is that of a deadline
	Ignores    Habit = "ignores"    // it ignores deadlines, as one through ssh
	Refuses    Habit = "refuses"    // it refuses deadlines
	Overwrites Habit = "overwrites" // each Read sets a read deadline of its own

	// Of a wrapper around the driver's connection.
	Panics Habit = "panics" // its Raw panics
	Hides  Habit = "hides"  // its Raw returns nothing
	Bare   Habit = "bare"   // it has only the methods that a driver must have
)

// Wires are the habits of a net.Conn, Wrappers those of a wrapper.
var (
	Wires    = []Habit{Websocket, Closes, Ignores, Refuses, Overwrites}
	Wrappers = []Habit{Panics, Hides, Bare}
)

// Open opens a pool over a driver, "pgx" or "postgres" (lib/pq). New connections lead to the host and port that at
// returns, unless at is nil. The caller closes the pool.
func Open(name, dsn string, h Habit, at func() string) (*sql.DB, error) {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if at != nil {
			address = at()
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return h.wire(conn), nil
	}
	var connector driver.Connector
	switch name {
	case "pgx":
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, err
		}
		config.DialFunc = dial
		connector = stdlib.GetConnector(*config)
	case "postgres":
		c, err := pq.NewConnector(dsn)
		if err != nil {
			return nil, err
		}
		c.Dialer(dialer(dial))
		connector = c
	default:
		return nil, fmt.Errorf("unruly: unknown driver %q", name)
	}
	return sql.OpenDB(wrapping{connector, h}), nil
}

// A dialer is lib/pq's.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d(ctx, network, address)
}

func (d dialer) Dial(network, address string) (net.Conn, error) {
	return d(context.Background(), network, address)
}

func (d dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d(ctx, network, address)
}

// wrapping is a connector whose connections have a wrapper, if that is the habit.
type wrapping struct {
	driver.Connector
	habit Habit
}

func (w wrapping) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := w.Connector.Connect(ctx)
	if err != nil || w.habit != Panics && w.habit != Hides && w.habit != Bare {
		return conn, err
	}
	if w.habit == Bare {
		return struct{ driver.Conn }{conn}, nil
	}
	all, ok := conn.(able)
	if !ok {
		return nil, fmt.Errorf("unruly: %T lacks methods that database/sql uses", conn)
	}
	return traced{all, w.habit}, nil
}

// able has the optional methods that the connections of both drivers have.
type able interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
}

// traced is a connection below a library that traces.
type traced struct {
	able
	habit Habit
}

// Raw should return the connection below.
func (t traced) Raw() driver.Conn {
	if t.habit == Panics {
		panic("unruly: Raw")
	}
	return nil
}
