//go:build unix

package conformance_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/electortest"
	"go.uber.org/goleak"
)

// Each script in scripts.txt is a sequence of statements on several sessions, with their results. A
// real server, over both drivers, and the stand-in of package electortest must give these results.
//
//go:embed scripts.txt
var file string

var update = flag.Bool("update", false, "write the results of a real server into scripts.txt")

var shared = pgcluster.NewShared()

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Around(m)) }

// A side is a server for a script: a real one or the stand-in.
type side struct {
	open    func(t *testing.T) *sql.DB // a pool of the primary
	standby func(t *testing.T) *sql.DB // a pool of its standby
	promote func(t *testing.T)

	setEpoch func(t *testing.T, setting string) // of the database

	terminate, cancel func(pid int32)
	isAtGuard         func(pid int32) bool // reports whether it waits for a guard lock
	lives             func(pid int32) bool
}

func TestTheStandInAnswersAsPostgreSQLDoes(t *testing.T) {
	for name, text := range scripts() {
		t.Run(name, func(t *testing.T) {
			for _, driver := range []string{"pgx", "postgres"} {
				t.Run(driver, func(t *testing.T) {
					played := strings.TrimSpace(play(t, text, realSide(t, driver, strings.Contains(text, "promote"))))
					if *update {
						file = strings.Replace(file, text, played, 1)
						check(t, os.WriteFile("scripts.txt", []byte(file), 0o644))
						text = played
					}
					compare(t, text, played)
				})
			}
			for name, driver := range map[string]electortest.Driver{"stand-in like pgx": electortest.PGX, "stand-in like pq": electortest.PQ} {
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { compare(t, text, strings.TrimSpace(play(t, text, standIn(t, driver)))) })
				})
			}
		})
	}
}

func TestEveryStatementIsPlayed(t *testing.T) {
	for name := range verbs {
		if !strings.Contains(file, " "+name+" ") {
			t.Errorf("no script plays %s", name)
		}
	}
}

// realSide returns a PostgreSQL server. A script that promotes a standby gets its own servers.
func realSide(t *testing.T, driver string, ownServer bool) side {
	open := func(c *pgcluster.Cluster) func(t *testing.T) *sql.DB {
		return func(t *testing.T) *sql.DB {
			pool, err := sql.Open(driver, c.DSN())
			check(t, err)
			return pool
		}
	}
	if !ownServer {
		return adminSide(t, shared.Get(t), side{open: open(shared.Get(t))})
	}
	primary, err := pgcluster.Start(t.Context())
	check(t, err)
	t.Cleanup(func() { check(t, primary.Stop()) })
	standby, err := primary.AddStandby(t.Context())
	check(t, err)
	return adminSide(t, primary, side{open: open(primary), standby: open(standby),
		promote: func(t *testing.T) { check(t, standby.Promote(t.Context())) }})
}

// adminSide adds the functions that an administrator's connection implements.
func adminSide(t *testing.T, c *pgcluster.Cluster, s side) side {
	ask := func(sql string, pid int32) (yes bool) {
		conn, err := c.Conn(t.Context())
		check(t, err)
		defer conn.Close(t.Context())
		check(t, conn.QueryRow(t.Context(), sql, pid).Scan(&yes))
		return yes
	}
	alter := func(t *testing.T, setting string) {
		check(t, c.Exec(context.Background(), "ALTER DATABASE postgres "+setting))
	}
	s.setEpoch = func(t *testing.T, setting string) { alter(t, "SET pgelector.epoch = '"+setting+"'") }
	t.Cleanup(func() { alter(t, "RESET pgelector.epoch") })
	s.terminate = func(pid int32) { ask("SELECT pg_terminate_backend($1)", pid) }
	s.cancel = func(pid int32) { ask("SELECT pg_cancel_backend($1)", pid) }
	s.lives = func(pid int32) bool { return ask("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", pid) }
	s.isAtGuard = func(pid int32) bool {
		return ask("SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND objsubid = 2 AND NOT granted)", pid)
	}
	return s
}

// standIn returns the stand-in. It runs in the bubble of the test.
func standIn(t *testing.T, driver electortest.Driver) side {
	server := electortest.NewServer()
	t.Cleanup(server.Close)
	standby := server.NewStandby(0)
	t.Cleanup(standby.Close)
	open := func(s *electortest.Server) func(*testing.T) *sql.DB {
		process := s.NewProcess()
		process.SetDriver(driver)
		return func(*testing.T) *sql.DB { return process.Open() }
	}
	return side{open: open(server), standby: open(standby), promote: func(t *testing.T) { check(t, standby.Promote()) },
		setEpoch:  func(_ *testing.T, setting string) { server.SetTokenEpoch(setting) },
		terminate: func(pid int32) { server.Terminate(pid) },
		cancel:    func(pid int32) { server.Cancel(pid) },
		lives:     server.Cancel, // which does nothing to a backend that is idle
		isAtGuard: func(pid int32) bool {
			return slices.ContainsFunc(server.Locks(), func(l electortest.Lock) bool { return l.PID == pid && l.Guard && !l.Granted })
		}}
}

// scripts returns the scripts by their names.
func scripts() map[string]string {
	all := map[string]string{}
	for _, script := range strings.Split("\n"+file, "\n== ")[1:] {
		name, text, _ := strings.Cut(script, "\n")
		all[name] = strings.TrimSpace(text)
	}
	return all
}

// compare reports each line that differs.
func compare(t *testing.T, want, got string) {
	t.Helper()
	wanted, lines := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i, line := range lines {
		if i >= len(wanted) || line != wanted[i] {
			t.Errorf("line %d:\ngot  %s\nwant %s", i+1, line, wanted[min(i, len(wanted)-1)])
		}
	}
}

var check, within = must.Check, must.Eventually

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
	answer      int64 // the key of the lock that answers its request
	name        string
	pool        *sql.DB
	conn        *sql.Conn
	tx          *sql.Tx
	pid         int32
	started     int64       // by the server's clock
	fenced      string      // the name of its fenced transaction
	mark        string      // of its transaction
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
		within(t, one.name+" leaves", func() bool { return p.isGone(one) })
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
	one.started, err = db.New(one.conn).Clock(t.Context())
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
		return p.isGone(one)
	})
}

// isGone reports whether the session has ended on the primary.
func (p *player) isGone(one *playerSession) bool { return !p.lives(one.pid) }

// run runs one line and returns its result.
func (p *player) run(t *testing.T, one *playerSession, words []string) string {
	ctx, cancel := context.WithTimeout(context.Background(), must.Patience)
	defer cancel()
	var err error
	switch words[0] {
	case "done":
		return <-one.result
	case "begin":
		one.answer = 0
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
