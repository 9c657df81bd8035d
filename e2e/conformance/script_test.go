//go:build unix

package conformance_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/db"
)

// A script has lines such as
//
//	a  TryLock 7                -> granted a
//
// with a session, a statement with its arguments, and the result. A session starts at its first
// line, on the standby if its name begins with s. A statement that ends with & runs in the
// background; "done" waits for its result. Other words for a session are begin, commit, rollback,
// close, terminate and cancel. Lines without a result are "until x waits", "until x waits at the
// guard", "until x is gone", "promote", "epoch n", "pause", and comments.
type player struct {
	side
	admin    *sql.DB // of the primary
	sessions map[string]*playerSession
	token    int64 // the greatest seen
}

// A playerSession is one session of a script.
type playerSession struct {
	name        string
	pool        *sql.DB
	conn        *sql.Conn
	tx          *sql.Tx
	pid         int32
	started     int64
	transaction string      // as Confirm has named it
	server      string      // when its server started, by its last attempt or wait
	result      chan string // of the statement in the background
}

// play runs a script and returns it with the results.
func play(t *testing.T, script string, s side) string {
	t.Helper()
	p := &player{side: s, admin: s.open(t), sessions: map[string]*playerSession{}}
	defer p.leave(t)
	var played strings.Builder
	for _, line := range strings.SplitAfter(script, "\n") {
		words := strings.Fields(strings.SplitN(line, "->", 2)[0])
		switch {
		case len(words) == 0 || words[0] == "#":
			played.WriteString(line)
		case words[0] == "until":
			p.until(t, words[1], strings.Join(words[2:], " "))
			played.WriteString(line)
		case words[0] == "pause": // the clock must advance
			time.Sleep(2 * time.Millisecond)
			played.WriteString(line)
		case words[0] == "epoch":
			p.setEpoch(t, words[1])
			played.WriteString(line)
		case words[0] == "promote":
			p.promote(t)
			played.WriteString(line)
		case words[len(words)-1] == "&":
			one := p.session(t, words[0])
			go func() { one.result <- p.run(t, one, words[1:len(words)-1]) }()
			played.WriteString(line)
		default:
			fmt.Fprintf(&played, "%-43s -> %s\n", strings.TrimSpace(strings.SplitN(line, "->", 2)[0]), p.run(t, p.session(t, words[0]), words[1:]))
		}
	}
	return played.String()
}

// leave ends all sessions.
func (p *player) leave(t *testing.T) {
	for _, one := range p.sessions {
		one.close()
		check(t, one.pool.Close())
		within(t, one.name+" leaves", func() bool { return p.isGone(t, one) })
	}
	check(t, p.admin.Close())
}

func (one *playerSession) close() {
	one.endTx()
	_ = one.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = one.conn.Close()
}

func (one *playerSession) endTx() {
	if one.tx != nil {
		_ = one.tx.Rollback()
		one.tx = nil
	}
}

func (p *player) session(t *testing.T, name string) *playerSession {
	t.Helper()
	if one := p.sessions[name]; one != nil {
		return one
	}
	one := &playerSession{name: name, result: make(chan string, 1)}
	if strings.HasPrefix(name, "s") {
		one.pool = p.standby(t)
	} else {
		one.pool = p.open(t)
	}
	var err error
	one.conn, err = one.pool.Conn(t.Context())
	check(t, err)
	ping, err := db.New(one.conn).Ping(t.Context())
	check(t, err)
	one.pid = ping.Pid
	one.started, err = db.New(one.conn).BackendStart(t.Context())
	check(t, err)
	p.sessions[name] = one
	return one
}

// until waits until a session is in the given state.
func (p *player) until(t *testing.T, name, state string) {
	t.Helper()
	one := p.session(t, name)
	within(t, name+" "+state, func() bool {
		switch state {
		case "waits":
			return p.waits(t, one)
		case "waits at the guard":
			return p.isAtGuard(one.pid)
		}
		return p.isGone(t, one)
	})
}

// isGone reports whether the session has ended on the primary.
func (p *player) isGone(t *testing.T, one *playerSession) bool {
	t.Helper()
	row, err := db.New(p.admin).LastAsked(t.Context(), one.pid)
	check(t, err)
	return row.Asked == 0
}

// run runs one line and returns its result.
func (p *player) run(t *testing.T, one *playerSession, words []string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var err error
	switch words[0] {
	case "done":
		return <-one.result
	case "begin":
		one.tx, err = one.conn.BeginTx(context.Background(), nil)
	case "commit":
		err = one.tx.Commit()
		one.tx = nil
	case "rollback":
		err = one.tx.Rollback()
		one.tx = nil
	case "close":
		one.close()
	case "terminate":
		p.terminate(one.pid)
	case "cancel":
		p.cancel(one.pid)
	default:
		return p.call(ctx, one, words)
	}
	return one.outcome(err, "ok")
}

// outcome returns text, or the SQLSTATE of an error. All errors that end the session have the same
// text, since the drivers report them differently.
func (one *playerSession) outcome(err error, text string) string {
	var state interface{ SQLState() string }
	switch {
	case err == nil:
		return text
	case errors.Is(err, sql.ErrNoRows):
		return "none"
	case !errors.As(err, &state):
		one.endTx() // otherwise database/sql would wait for it
		if one.conn.PingContext(context.Background()) != nil {
			return "the session has ended"
		}
		return "error without SQLSTATE"
	}
	switch state.SQLState() {
	case "57P01", "57P05", "25P03", "25P04":
		return "the session has ended"
	}
	return "SQLSTATE " + state.SQLState()
}
