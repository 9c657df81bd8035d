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
)

// candidateVariable holds a candidate's spec. It makes the program a candidate.
const candidateVariable = "PGELECTOR_FLEET_CANDIDATE"

// The elections. Every candidate takes part in the first; candidates on a shared session
// also take part in the second.
const (
	firstElection  = "torture"
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
	c.out.Record(history.Event{Kind: history.Hello, PID: os.Getpid(), Text: c.Seat.String()})
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
	if c.Watch {
		shared = append(shared, elector.WithWatch())
	}
	if !c.Session {
		var opts []elector.Option
		for _, opt := range shared {
			opts = append(opts, opt)
		}
		opts = append(opts, elector.WithStandby(c.Standby))
		if c.Interval > 0 {
			opts = append(opts, elector.WithDeputyInterval(c.Interval))
		}
		if c.Synchronous {
			opts = append(opts, elector.WithSynchronousStandby(Lease))
		}
		return c.enter("", func(hooks elector.CommonOption) (*elector.Elector, error) {
			return elector.New(c.pool, firstElection, append(opts, hooks)...)
		})
	}
	if c.session, err = elector.NewSession(c.pool, shared...); err != nil {
		return err
	}
	return errors.Join(
		c.enter("", func(hooks elector.CommonOption) (*elector.Elector, error) {
			return c.session.Elector(firstElection, hooks)
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
			wg.Go(func() { cancel(e.elector.Run(ctx, e.lead)) })
			wg.Go(func() { e.sample(ctx) })
		}
	case cmdMove:
		return c.move(address)
	case Resign:
		wg.Go(func() { c.entries[0].resign(ctx) })
	case Discard:
		wg.Go(func() { c.discard(ctx) })
	case Close:
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
