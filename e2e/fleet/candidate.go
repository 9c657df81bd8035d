//go:build linux

package fleet

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// candidateVariable holds a candidate's spec. It makes the program a candidate.
const candidateVariable = "PGELECTOR_FLEET_CANDIDATE"

// The elections. Every candidate takes part in the first; candidates on a shared session
// also take part in the second.
const (
	FirstElection  = "torture"
	SecondElection = "torture, the second"
)

// The commands on a candidate's standard input. At its end the candidate leaves.
const (
	cmdGo   = "go"   // start, at the address that follows
	cmdMove = "move" // make new connections to the address that follows

	Resign  = "resign"  // resign the term
	Discard = "discard" // run DISCARD ALL and the like on the elector's pool, as other code might
	Close   = "close"   // close the elector's pool
)

// spec describes a candidate to its process.
type spec struct {
	Seat
	Name string
}

// candidate is the state of a candidate's process.
type candidate struct {
	spec
	address atomic.Pointer[driver.Connector]
	pool    *sql.DB
	out     *history.Recorder
	entries []*entry
	session *elector.Session // nil unless it is shared
	closed  atomic.Bool      // the pool, by Close: the elections have ended, and nothing is left but to leave
}

// errLeave ends a candidate when its standard input ends.
var errLeave = errors.New("asked to leave")

// leaving bounds how long a candidate takes to leave.
const leaving = Patience / 2

// RunIfCandidate runs a candidate and exits, if a Fleet started this process as one.
// Otherwise it returns at once. It must be the first call of main.
func RunIfCandidate() {
	if text := os.Getenv(candidateVariable); text != "" {
		os.Exit(runCandidate(text))
	}
}

func runCandidate(text string) (exit int) {
	c := &candidate{}
	if err := json.Unmarshal([]byte(text), &c.spec); err != nil {
		return complain(err)
	}
	c.out = history.NewRecorder(os.Stdout, c.Name)
	c.pool = sql.OpenDB(c)
	if err := c.newElectors(); err != nil {
		return complain(err)
	}
	c.out.Record(history.Event{Kind: history.Hello, PID: os.Getpid(), Text: c.Seat.String(), Driver: c.DriverName(), Lease: c.LeaseLength(), Idle: c.Idle})
	err := c.run()
	c.out.Record(history.Event{Kind: history.Bye})
	if err = errors.Join(err, c.out.Err()); err != nil {
		return complain(err)
	}
	return 0
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func (c *candidate) newElectors() (err error) {
	shared := c.options()
	if !c.Session {
		var opts []elector.Option
		for _, opt := range shared {
			opts = append(opts, opt)
		}
		opts = append(opts, elector.WithTakeover(c.Takeover))
		if c.Interval > 0 {
			opts = append(opts, elector.WithDeputyInterval(c.Interval))
		}
		if c.Synchronous {
			opts = append(opts, elector.WithSynchronousStandby(c.LeaseLength()))
		}
		return c.enter("", func(hooks elector.CommonOption) (*elector.Elector, error) {
			return elector.New(c.pool, FirstElection, append(opts, hooks)...)
		})
	}
	if c.session, err = elector.NewSession(c.pool, shared...); err != nil {
		return err
	}
	return errors.Join(
		c.enter("", func(hooks elector.CommonOption) (*elector.Elector, error) {
			return c.session.Elector(FirstElection, hooks)
		}),
		c.enter(SecondElection, func(hooks elector.CommonOption) (*elector.Elector, error) {
			return c.session.Elector(SecondElection, hooks)
		}))
}

// enter adds an election. make returns its elector.
func (c *candidate) enter(election string, make func(elector.CommonOption) (*elector.Elector, error)) (err error) {
	e := &entry{candidate: c, election: election}
	e.elector, err = make(elector.WithHooks(e.hook()))
	c.entries = append(c.entries, e)
	return err
}

// run handles commands until standard input ends, or an election refuses to run.
func (c *candidate) run() error {
	ctx, cancel := context.WithCancelCause(context.Background())
	var wg sync.WaitGroup
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			verb, address, _ := strings.Cut(in.Text(), " ")
			if err := c.handle(ctx, cancel, &wg, verb, address); err != nil {
				cancel(err)
			}
		}
		cancel(errLeave)
	}()
	<-ctx.Done()
	time.AfterFunc(leaving, func() { os.Exit(complain(errors.New("the candidate did not leave in time"))) })
	wg.Wait()
	if c.session != nil {
		closing, enough := context.WithTimeout(context.Background(), leaving)
		defer enough()
		_ = c.session.Close(closing)
	}
	go c.pool.Close() // it may hang on a dead link, with lib/pq
	if err := context.Cause(ctx); !errors.Is(err, errLeave) {
		return err
	}
	return nil
}

func (c *candidate) handle(ctx context.Context, cancel context.CancelCauseFunc, wg *sync.WaitGroup, verb, address string) error {
	switch verb {
	case cmdGo:
		if err := c.move(address); err != nil {
			return err
		}
		for _, e := range c.entries {
			wg.Go(func() {
				if err := e.elector.Run(ctx, e.lead); !c.closed.Load() || !errors.Is(err, elector.ErrPoolClosed) {
					cancel(err)
				}
			})
			wg.Go(func() { e.sample(ctx) })
		}
	case cmdMove:
		return c.move(address)
	case Resign:
		wg.Go(func() { c.entries[0].resign(ctx) })
	case Discard:
		wg.Go(func() { c.discard(ctx) })
	case Close:
		c.closed.Store(true)
		go c.pool.Close()
	default:
		return fmt.Errorf("unknown command %q", verb)
	}
	return nil
}

// discard runs statements on every pooled connection that reset its session. The elector's
// session must not be among them.
func (c *candidate) discard(ctx context.Context) {
	for i := range 60 {
		statement := []string{"SELECT pg_advisory_unlock_all()", "RESET ALL", "DISCARD ALL"}[i%3]
		asking, enough := context.WithTimeout(ctx, Lease)
		_, _ = c.pool.ExecContext(asking, statement)
		enough()
	}
}

// Connect connects to the current address, as a host name that moves would.
func (c *candidate) Connect(ctx context.Context) (driver.Conn, error) {
	return (*c.address.Load()).Connect(ctx)
}

// Driver implements driver.Connector.
func (c *candidate) Driver() driver.Driver { return (*c.address.Load()).Driver() }

func (c *candidate) move(dsn string) error {
	var to driver.Connector
	if c.By == "postgres" {
		connector, err := pq.NewConnector(dsn)
		if err != nil {
			return err
		}
		to = connector
	} else {
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			return err
		}
		to = stdlib.GetConnector(*config)
	}
	c.address.Store(&to)
	return nil
}

// entry is one election of a candidate.
type entry struct {
	*candidate
	election string // "" for the first
	elector  *elector.Elector
	writes   int
}

func (e *entry) record(event history.Event) {
	event.Election = e.election
	e.out.Record(event)
}

func (e *entry) hook() hooks.Funcs {
	return hooks.Funcs{
		Elected: func(_ context.Context, ev hooks.Elected) {
			told := history.Event{Kind: history.Elected, Token: ev.Token}
			if ev.NotListening != nil {
				told.Text = ev.NotListening.Error()
			}
			e.record(told)
		},
		Demoted: func(_ context.Context, ev hooks.Demoted) {
			e.record(history.Event{Kind: history.Demoted, Token: ev.Token, Text: string(ev.Reason)})
		},
		Campaign: func(_ context.Context, ev hooks.Campaign) {
			began := time.Since(ev.At) + ev.Took
			e.record(history.Event{Kind: history.Attempt, At: history.Now().Add(-began), Took: ev.Took, Text: string(ev.Outcome)})
		},
		Error: func(_ context.Context, ev hooks.Failure) {
			e.record(history.Event{Kind: history.Failed, Text: fmt.Sprintf("%s: %v", ev.Op, ev.Err)})
		},
	}
}

// lead is the leader's work: small steps, each in a valid term. In the first election it
// also writes to the register, an idle leader once, and remembers the value that it wrote.
func (e *entry) lead(ctx context.Context, term *elector.Term) error {
	if at := history.Now(); term.Valid() {
		e.record(history.Event{Kind: history.Began, At: at, Token: term.Token()})
	}
	register, before := memory{}, e.writes
	for ctx.Err() == nil {
		if at := history.Now(); term.Valid() {
			e.record(history.Event{Kind: history.Worked, At: at, Token: term.Token()})
		}
		if e.election == "" && (!e.Idle || e.writes == before) {
			register = e.use(ctx, term, register)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(writing)):
		}
	}
	time.Sleep(e.Winds)
	at := history.Now()
	overdue := time.Now().After(term.Deadline().Add(e.LeaseLength() / drainShare))
	e.record(history.Event{Kind: history.Ended, At: at, Token: term.Token(), Overdue: overdue})
	return nil
}

func (e *entry) resign(ctx context.Context) {
	resigned := history.Event{Kind: history.Resigned}
	if term, leading := e.elector.Term(); !leading {
		resigned.Text = elector.ErrNotLeader.Error()
	} else if err := term.Resign(ctx); err != nil {
		resigned.Token, resigned.Text = term.Token(), err.Error()
	}
	e.record(resigned)
}

// How often an unchanged sample is recorded. After a kill, at most this much of the
// leader's belief is missing from the history.
const (
	recordLeading   = 50 * time.Millisecond
	recordFollowing = time.Second
	notRunning      = 20 * time.Millisecond // a longer time between two calls means that the process was not running
)

// sample calls IsLeader again and again and records each change: the last result before
// it and the first result after it. So it does if the process was not running in between.
func (e *entry) sample(ctx context.Context) {
	var last, recorded history.Event
	record := func(s history.Event) {
		if s.At != 0 && s.At != recorded.At {
			recorded = s
			e.record(s)
		}
	}
	for ctx.Err() == nil {
		s := e.ask()
		if since := s.At.Sub(last.At); last.At != 0 && since > notRunning {
			s.Stood = since
		}
		interval := recordFollowing
		if s.Leading {
			interval = recordLeading
		}
		switch {
		case s.Leading != last.Leading, s.Token != last.Token, s.Stood > 0:
			record(last)
			record(s)
		case s.At.Sub(recorded.At) > interval:
			record(s)
		}
		last = s
		select {
		case <-time.After(Sampling):
		case <-ctx.Done():
		}
	}
	record(last)
}

// ask reads the term before it calls IsLeader, so that a true result never belongs to an
// earlier term than the one read.
func (e *entry) ask() history.Event {
	s := history.Event{Kind: history.Sample, At: history.Now()}
	term, _ := e.elector.Term()
	s.Leading = e.elector.IsLeader()
	s.Took = history.Now().Sub(s.At)
	if term != nil {
		s.Token = term.Token()
	}
	return s
}

// Role is the candidates' role. It may only connect and write to the tables of Schema.
const Role = "candidate"

// Schema creates the tables that leaders write to. Each timeline of the database has its
// own register, so a replaced primary and its successor have different ones. The first
// write names the register, since a timeline number may be used again after a failover
// manager discards a timeline. The ledger keeps every write and so shows which
// acknowledged writes a failover lost.
const Schema = `
	CREATE TABLE register (timeline text PRIMARY KEY, name text NOT NULL, value text NOT NULL);
	CREATE TABLE ledger (value text PRIMARY KEY, register text NOT NULL, token bigint NOT NULL);
	GRANT SELECT, INSERT, UPDATE ON register TO ` + Role + `;
	GRANT INSERT ON ledger TO ` + Role

const timelineNow = `pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8)`

const (
	readRegister = `SELECT coalesce(r.name, ''), coalesce(r.value, '')
		FROM (SELECT ` + timelineNow + ` AS timeline) now LEFT JOIN register r ON r.timeline = now.timeline`
	writeRegister = `INSERT INTO register SELECT now, now || ' ' || gen_random_uuid(), $1 FROM (SELECT ` + timelineNow + ` AS now) t
		ON CONFLICT (timeline) DO UPDATE SET value = excluded.value RETURNING name`
	writeLedger = `INSERT INTO ledger VALUES ($1, $2, $3)`
)

// memory is what a leader knows about the register. Its name is empty before the first
// write.
type memory struct {
	known       bool
	name, value string
}

// use reads the register if it is not known, and otherwise writes to it. It returns the
// new knowledge.
func (e *entry) use(ctx context.Context, term *elector.Term, known memory) memory {
	op := history.Event{At: history.Now(), Token: term.Token(), Way: history.InTx}
	if !known.known {
		err := term.InTx(ctx, e.pool, nil, func(tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, readRegister).Scan(&known.name, &known.value)
		})
		if err != nil {
			return memory{}
		}
		known.known = true
		if known.name == "" {
			return known
		}
		op.Kind, op.Register, op.New = history.Read, known.name, known.value
		op.Took = history.Now().Sub(op.At)
		e.record(op)
		return known
	}
	e.writes++
	op.Register, op.Old, op.New = known.name, known.value, fmt.Sprint(e.Name, "-", e.writes)
	op.Kind = history.Writes
	e.record(op) // before the write, since this process may be killed
	op.At = history.Now()
	err := term.InTx(ctx, e.pool, nil, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, writeRegister, op.New).Scan(&op.Register); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, writeLedger, op.New, op.Register, op.Token)
		return err
	})
	op.Took = history.Now().Sub(op.At)
	op.Kind = history.Wrote
	switch {
	case errors.Is(err, elector.ErrOutcomeUnknown):
		op.Kind, op.Text = history.Unsure, err.Error()
	case err != nil:
		op.Kind, op.Text = history.Refused, err.Error()
	}
	e.record(op)
	if err != nil {
		return memory{} // read the register again
	}
	return memory{true, op.Register, op.New}
}
