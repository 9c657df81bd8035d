//go:build unix

package e2e_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// candidateVariable holds the settings of a candidate. It makes the test binary
// one, instead of running the tests.
const candidateVariable = "PGELECTOR_E2E_CANDIDATE"

// settings are what a candidate's process is told.
type settings struct {
	Driver, DSN, Election, ID string
	Lease, Heartbeat, Retry   time.Duration
	Spin                      bool   // look at IsLeader without a pause
	Wait, Watch               bool   // WithStandby(Wait), WithWatch
	Elections                 int    // so many, on one session: the history is of their number
	Roster                    string // the schema of a roster to write; none if empty
}

// beCandidate runs until SIGTERM and tells its history on standard output, an
// entry a line. On standard input it takes a command a line, and ends when that
// is closed: when the test is gone.
func beCandidate(text string) (exit int) {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return complain(err)
	}
	pool, err := sql.Open(s.Driver, s.DSN)
	if err != nil {
		return complain(err)
	}
	defer pool.Close()
	tell := teller(s.ID)
	rec := hookstest.NewRecorder(historian(tell))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if s.Elections > 0 {
		return leadMany(ctx, s, pool, tell)
	}
	// Without a LeaderChanged hook, so that an attempt is the plain one.
	rosterHooks, closeRoster, err := s.rosterHooks(pool)
	if err != nil {
		return complain(err)
	}
	defer closeRoster()
	opts := []elector.Option{elector.WithHooks(rosterHooks...),
		elector.WithHooks(hooks.Funcs{Elected: rec.OnElected, Demoted: rec.OnDemoted, Error: rec.OnError, Heartbeat: rec.OnHeartbeat})}
	if s.Wait {
		opts = append(opts, elector.WithStandby(elector.Wait))
	}
	e, err := elector.New(pool, s.Election, append(opts, optionsOf(s.options())...)...)
	if err != nil {
		return complain(err)
	}
	tell(entry{Kind: ready})
	go obey(e)
	watched := make(chan struct{})
	watching, enough := context.WithCancel(context.Background())
	go func() {
		defer close(watched)
		newWitness(e, tell, s.Spin).watch(watching)
	}()
	runErr := e.Run(ctx, nil)
	enough()
	<-watched
	for _, violation := range rec.Violations() {
		tell(entry{Kind: violated, Text: violation})
	}
	if ctx.Err() == nil {
		return complain(runErr)
	}
	return 0
}

func (s settings) options() []elector.SessionOption {
	opts := []elector.SessionOption{elector.WithCandidateID(s.ID), elector.WithLease(s.Lease),
		elector.WithHeartbeatInterval(s.Heartbeat), elector.WithRetryInterval(s.Retry)}
	if s.Watch {
		opts = append(opts, elector.WithWatch())
	}
	return opts
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// teller returns a function that writes an entry.
func teller(id string) func(entry) {
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	return func(e entry) {
		mu.Lock()
		defer mu.Unlock()
		e.ID = id
		_ = out.Encode(e)
	}
}

// historian tells of terms.
func historian(tell func(entry)) hooks.Hook {
	return hooks.Funcs{
		Elected: func(_ context.Context, e hooks.Elected) {
			tell(entry{Kind: elected, Token: e.Token, From: e.At.UnixNano()})
		},
		Demoted: func(_ context.Context, e hooks.Demoted) {
			tell(entry{Kind: demoted, Token: e.Token, From: e.At.UnixNano(), Text: string(e.Reason)})
		},
		Heartbeat: func(_ context.Context, e hooks.Heartbeat) {
			tell(entry{Kind: renewed, Token: e.Token, From: e.At.UnixNano(), To: e.Deadline.UnixNano()})
		},
		Error: func(_ context.Context, e hooks.Failure) {
			tell(entry{Kind: failed, From: e.At.UnixNano(), Text: fmt.Sprintf("%s: %v", e.Op, e.Err)})
		},
	}
}

// obey follows the commands on standard input.
func obey(e *elector.Elector) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		term, leading := e.Term()
		if !leading {
			continue
		}
		if successor, to := strings.CutPrefix(in.Text(), commandTransferTo); to {
			_ = term.TransferTo(context.Background(), successor)
		} else if in.Text() == commandResign {
			_ = term.Resign(context.Background())
		}
	}
	os.Exit(2)
}

const (
	commandResign     = "resign"
	commandTransferTo = "resign to "
)

// leadMany makes the process a candidate of many elections, on one session. It
// ends as a service would: by closing the session.
func leadMany(ctx context.Context, s settings, pool *sql.DB, tell func(entry)) (exit int) {
	session, err := elector.NewSession(pool, s.options()...)
	if err != nil {
		return complain(err)
	}
	var all sync.WaitGroup
	for i := range s.Elections {
		number := fmt.Sprint(i)
		e, err := session.Elector(electionOf(s.Election, i), elector.WithHooks(hooks.Funcs{
			Elected: func(_ context.Context, e hooks.Elected) {
				tell(entry{Kind: elected, Election: number, Token: e.Token, From: e.At.UnixNano()})
			},
			Demoted: func(_ context.Context, e hooks.Demoted) {
				tell(entry{Kind: demoted, Election: number, Token: e.Token, From: e.At.UnixNano(), Text: string(e.Reason)})
			},
		}))
		if err != nil {
			return complain(err)
		}
		all.Go(func() { _ = e.Run(context.Background(), nil) })
	}
	tell(entry{Kind: ready})
	<-ctx.Done()
	if err := session.Close(context.Background()); err != nil {
		return complain(err)
	}
	all.Wait()
	return 0
}

// electionOf is the name of the i-th election of a session.
func electionOf(name string, i int) string { return fmt.Sprintf("%s-%d", name, i) }
