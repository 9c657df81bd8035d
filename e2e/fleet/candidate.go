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

// candidateVariable holds the part of a candidate, and makes the program one.
const candidateVariable = "PGELECTOR_FLEET_CANDIDATE"

// The elections: every candidate stands in the first, and those on a shared
// session in the second, too.
const (
	firstElection  = "torture"
	SecondElection = "torture, the second"
)

// The commands on a candidate's standard input. Its end is one, too: to leave.
const (
	cmdGo   = "go"   // begin, at the address that follows
	cmdMove = "move" // make new connections to the address that follows

	Resign  = "resign"  // give the term up
	Discard = "discard" // be a stranger on the elector's pool
	Close   = "close"   // close the pool under the elector
)

// part is what a candidate's process is told.
type part struct {
	Seat
	Name string
}

// cast is a candidate from the inside.
type cast struct {
	part
	address atomic.Pointer[driver.Connector]
	pool    *sql.DB
	out     *history.Recorder
	stands  []*stand
	session *elector.Session // nil unless it is shared
}

// errLeave ends what a candidate does when it is told to.
var errLeave = errors.New("told to leave")

// leaving bounds how long a candidate takes to leave.
const leaving = Patience / 2

// RunIfCandidate runs a candidate and exits, if a Fleet started this process as one.
// Otherwise it returns at once. It must be the first call of main.
func RunIfCandidate() {
	if told := os.Getenv(candidateVariable); told != "" {
		os.Exit(beCandidate(told))
	}
}

func beCandidate(told string) (exit int) {
	c := &cast{}
	if err := json.Unmarshal([]byte(told), &c.part); err != nil {
		return complain(err)
	}
	c.out = history.NewRecorder(os.Stdout, c.Name)
	c.pool = sql.OpenDB(c)
	if err := c.stand(); err != nil {
		return complain(err)
	}
	c.out.Record(history.Event{Kind: history.Hello, PID: os.Getpid(), Text: c.Seat.String()})
	err := c.play()
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

// stand makes the electors.
func (c *cast) stand() (err error) {
	shared := c.options()
	if c.Watch {
		shared = append(shared, elector.WithWatch())
	}
	if !c.Session {
		var opts []elector.Option
		for _, opt := range shared {
			opts = append(opts, opt)
		}
		if c.Wait {
			opts = append(opts, elector.WithStandby(elector.Wait))
		}
		if c.Synchronous {
			opts = append(opts, elector.WithSynchronousStandby(Lease))
		}
		return c.standIn("", func(hooks elector.CommonOption) (*elector.Elector, error) {
			return elector.New(c.pool, firstElection, append(opts, hooks)...)
		})
	}
	if c.session, err = elector.NewSession(c.pool, shared...); err != nil {
		return err
	}
	return errors.Join(
		c.standIn("", func(hooks elector.CommonOption) (*elector.Elector, error) {
			return c.session.Elector(firstElection, hooks)
		}),
		c.standIn(SecondElection, func(hooks elector.CommonOption) (*elector.Elector, error) {
			return c.session.Elector(SecondElection, hooks)
		}))
}

func (c *cast) standIn(election string, enter func(elector.CommonOption) (*elector.Elector, error)) (err error) {
	s := &stand{cast: c, election: election}
	s.elector, err = enter(elector.WithHooks(s.hook()))
	c.stands = append(c.stands, s)
	return err
}

// play obeys until standard input ends, or an election refuses to run.
func (c *cast) play() error {
	ctx, cancel := context.WithCancelCause(context.Background())
	var wg sync.WaitGroup
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			verb, address, _ := strings.Cut(in.Text(), " ")
			if err := c.obey(ctx, cancel, &wg, verb, address); err != nil {
				cancel(err)
			}
		}
		cancel(errLeave)
	}()
	<-ctx.Done()
	time.AfterFunc(leaving, func() { os.Exit(complain(errors.New("it does not get to its end"))) })
	wg.Wait()
	if c.session != nil {
		closing, enough := context.WithTimeout(context.Background(), leaving)
		defer enough()
		_ = c.session.Close(closing)
	}
	go c.pool.Close() // which may hang on a dead link, with lib/pq
	if err := context.Cause(ctx); !errors.Is(err, errLeave) {
		return err
	}
	return nil
}

func (c *cast) obey(ctx context.Context, cancel context.CancelCauseFunc, wg *sync.WaitGroup, verb, address string) error {
	switch verb {
	case cmdGo:
		if err := c.move(address); err != nil {
			return err
		}
		for _, s := range c.stands {
			wg.Go(func() { cancel(s.elector.Run(ctx, s.lead)) })
			wg.Go(func() { s.sample(ctx) })
		}
	case cmdMove:
		return c.move(address)
	case Resign:
		wg.Go(func() { c.stands[0].resign(ctx) })
	case Discard:
		wg.Go(func() { c.discard(ctx) })
	case Close:
		go c.pool.Close()
	default:
		return fmt.Errorf("unknown command %q", verb)
	}
	return nil
}

// discard does to every connection that the pool gives what a stranger may do.
// The session must not be among them.
func (c *cast) discard(ctx context.Context) {
	for i := range 60 {
		statement := []string{"SELECT pg_advisory_unlock_all()", "RESET ALL", "DISCARD ALL"}[i%3]
		asking, enough := context.WithTimeout(ctx, Lease)
		_, _ = c.pool.ExecContext(asking, statement)
		enough()
	}
}

// Connect connects to wherever the address says at the time, as a host name does.
func (c *cast) Connect(ctx context.Context) (driver.Conn, error) {
	return (*c.address.Load()).Connect(ctx)
}

// Driver makes a candidate a connector.
func (c *cast) Driver() driver.Driver { return (*c.address.Load()).Driver() }

func (c *cast) move(dsn string) error {
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
