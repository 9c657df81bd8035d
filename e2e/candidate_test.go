//go:build unix

package e2e_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
	"github.com/pgelector/pgelector/roster"
)

// candidateVariable holds the settings of a candidate. If it is set, the test binary runs
// a candidate instead of the tests.
const candidateVariable = "PGELECTOR_E2E_CANDIDATE"

// settings configure a candidate's process.
type settings struct {
	Driver, DSN, Election, ID string
	Lease, Heartbeat, Retry   time.Duration
	Spin                      bool // call IsLeader without a pause
	Takeover                  elector.Takeover
	Elections                 int    // number of elections on one session; their history then has election numbers
	Roster                    string // schema of the roster to write; none if empty
	Publish                   time.Duration
	MayFree                   bool // handle commandFree
}

// runCandidate runs a candidate until SIGTERM. It writes its history to standard output,
// one entry per line. It reads commands from standard input, one per line, and ends when
// that is closed, as when the test has ended.
func runCandidate(text string) (exit int) {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return complain(err)
	}
	pool, err := sql.Open(s.Driver, s.DSN)
	if err != nil {
		return complain(err)
	}
	defer pool.Close()
	statements := &counter{counts: map[string]int{}}
	if s.MayFree {
		pool = sql.OpenDB(countingConnector{pool.Driver(), s.DSN, statements})
		defer pool.Close()
	}
	record := recorder(s.ID)
	rec := hookstest.NewRecorder(recordTerms(record))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if s.Elections > 0 {
		return leadMany(ctx, s, pool, record)
	}
	// Without a LeaderChanged hook, attempts are the simple ones.
	rosterHooks, closeRoster, err := s.rosterHooks(pool)
	if err != nil {
		return complain(err)
	}
	defer closeRoster()
	opts := []elector.Option{elector.WithHooks(rosterHooks...),
		elector.WithHooks(hooks.Funcs{Elected: rec.OnElected, Demoted: rec.OnDemoted, Error: rec.OnError, Heartbeat: rec.OnHeartbeat})}
	opts = append(opts, elector.WithTakeover(s.Takeover))
	e, err := elector.New(pool, s.Election, append(opts, optionsOf(s.options())...)...)
	if err != nil {
		return complain(err)
	}
	for _, h := range rosterHooks {
		if err := h.(*roster.Roster).Add(e); err != nil {
			return complain(err)
		}
	}
	record(entry{Kind: ready})
	go handleCommands(e, rosterHooks, statements)
	watched := make(chan struct{})
	watching, enough := context.WithCancel(context.Background())
	go func() {
		defer close(watched)
		newSampler(e, record, s.Spin).watch(watching)
	}()
	runErr := e.Run(ctx, nil)
	enough()
	<-watched
	for _, violation := range rec.Violations() {
		record(entry{Kind: violated, Text: violation})
	}
	if ctx.Err() == nil {
		return complain(runErr)
	}
	return 0
}

func (s settings) options() []elector.SessionOption {
	return []elector.SessionOption{elector.WithCandidateID(s.ID), elector.WithLease(s.Lease),
		elector.WithHeartbeatInterval(s.Heartbeat), elector.WithRetryInterval(s.Retry)}
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// recorder returns a function that writes an entry.
func recorder(id string) func(entry) {
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	return func(e entry) {
		mu.Lock()
		defer mu.Unlock()
		e.ID = id
		_ = out.Encode(e)
	}
}

// recordTerms returns a hook that records terms.
func recordTerms(record func(entry)) hooks.Hook {
	return hooks.Funcs{
		Elected: func(_ context.Context, e hooks.Elected) {
			record(entry{Kind: elected, Token: e.Token, From: e.At.UnixNano()})
		},
		Demoted: func(_ context.Context, e hooks.Demoted) {
			record(entry{Kind: demoted, Token: e.Token, From: e.At.UnixNano(), Text: string(e.Reason)})
		},
		Heartbeat: func(_ context.Context, e hooks.Heartbeat) {
			record(entry{Kind: renewed, Token: e.Token, From: e.At.UnixNano(), To: e.Deadline.UnixNano()})
		},
		Error: func(_ context.Context, e hooks.Failure) {
			record(entry{Kind: failed, From: e.At.UnixNano(), Text: fmt.Sprintf("%s: %v", e.Op, e.Err)})
		},
	}
}

// handleCommands handles the commands on standard input.
func handleCommands(e *elector.Elector, rosters []hooks.Hook, statements *counter) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch fields := strings.Fields(in.Text()); fields[0] {
		case commandReport:
			score, _ := strconv.ParseFloat(fields[1], 64)
			e.ReportHealth(elector.HealthReport{Score: score, Why: fields[2], Metadata: map[string]string{"queue": fields[3]}})
			continue
		case commandPublish:
			for _, r := range rosters {
				_ = r.(*roster.Roster).SetElectionMetadata(e, map[string]string{fields[1]: fields[2]})
			}
			continue
		case commandFree:
			statements.before.Store(db.Ping, fmt.Sprintf("SELECT pg_advisory_unlock(%d)", e.Key()))
			continue
		}
		term, leading := e.Term()
		if !leading {
			continue
		}
		if successor, to := strings.CutPrefix(in.Text(), commandTransferTo); to {
			if err := term.TransferTo(context.Background(), successor); errors.Is(err, elector.ErrNoSuccessor) {
				_ = term.Resign(context.Background()) // let anybody lead
			}
		} else if in.Text() == commandResign {
			_ = term.Resign(context.Background())
		}
	}
	os.Exit(2)
}

const (
	commandResign     = "resign"
	commandReport     = "report"  // a score, why, and the length of a queue
	commandPublish    = "publish" // a key and a value of its metadata for the election
	commandFree       = "free"    // the lock, by another statement on the leader's own connection
	commandTransferTo = "resign to "
)

// leadMany runs candidates of many elections on one session. It ends as a service would:
// by closing the session.
func leadMany(ctx context.Context, s settings, pool *sql.DB, record func(entry)) (exit int) {
	session, err := elector.NewSession(pool, s.options()...)
	if err != nil {
		return complain(err)
	}
	var all sync.WaitGroup
	for i := range s.Elections {
		number := fmt.Sprint(i)
		e, err := session.Elector(electionOf(s.Election, i), elector.WithHooks(hooks.Funcs{
			Elected: func(_ context.Context, e hooks.Elected) {
				record(entry{Kind: elected, Election: number, Token: e.Token, From: e.At.UnixNano()})
			},
			Demoted: func(_ context.Context, e hooks.Demoted) {
				record(entry{Kind: demoted, Election: number, Token: e.Token, From: e.At.UnixNano(), Text: string(e.Reason)})
			},
		}))
		if err != nil {
			return complain(err)
		}
		all.Go(func() { _ = e.Run(context.Background(), nil) })
	}
	record(entry{Kind: ready})
	<-ctx.Done()
	if err := session.Close(context.Background()); err != nil {
		return complain(err)
	}
	all.Wait()
	return 0
}

// electionOf returns the name of the i-th election of a session.
func electionOf(name string, i int) string { return fmt.Sprintf("%s-%d", name, i) }
