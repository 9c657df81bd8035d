//go:build unix

package faults_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	sloghooks "github.com/pgelector/pgelector/hooks/slog"
)

// candidateVariable holds the settings of a candidate. If it is set, the test binary runs one.
const candidateVariable = "PGELECTOR_FAULTS_CANDIDATE"

type settings struct {
	DSN, Election, ID string
	AsksToCampaign    bool // after a term it waits for the order "campaign", so that the other one leads next
	Full              bool // its pool is full until the order "free"
	Fills             bool // its pool is full from the order "fill" on, until "free"
	Hangs             bool // its lead returns only by the order "return"
	Blocks            bool // a hook of its heartbeats returns only by the order "unblock"
}

// orders are those of the test. Each is given once, and opens its gate.
type orders struct {
	mu    sync.Mutex
	gates map[string]chan struct{}
}

func (o *orders) gate(name string) chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gates[name] == nil {
		o.gates[name] = make(chan struct{})
	}
	return o.gates[name]
}

// runCandidate logs to standard output, and ends with standard input, as when the test has ended.
func runCandidate(text string) error {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	pool, err := sql.Open("pgx", s.DSN)
	if err != nil {
		return err
	}
	ctx, o := context.Background(), &orders{gates: map[string]chan struct{}{}}
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			close(o.gate(in.Text()))
		}
		os.Exit(0)
	}()
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	e, err := elector.New(pool, s.Election, elector.WithCandidateID(s.ID), elector.WithLease(lease), elector.WithHooks(sloghooks.New(log)))
	if err != nil {
		return err
	}
	if s.Blocks {
		_, err = e.AddHooks(hooks.Funcs{Heartbeat: func(context.Context, hooks.Heartbeat) { <-o.gate("unblock") }})
	}
	const size = 3
	switch {
	case s.Full:
		err = fill(ctx, pool, size, size, o.gate("free"))
	case s.Fills:
		pool.SetMaxOpenConns(size)
		go func() {
			<-o.gate("fill")
			_ = fill(ctx, pool, size, size-1, o.gate("free")) // a deputy keeps one
		}()
	}
	if err != nil {
		return err
	}
	if s.AsksToCampaign {
		return campaign(ctx, e, o)
	}
	return e.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
		<-ctx.Done()
		if s.Hangs {
			<-o.gate("return")
		}
		return nil
	})
}

// fill takes connections of the pool.
func fill(ctx context.Context, pool *sql.DB, size, taken int, free <-chan struct{}) error {
	pool.SetMaxOpenConns(size)
	for range taken {
		conn, err := pool.Conn(ctx)
		if err != nil {
			return err
		}
		go func() {
			<-free
			_ = conn.Close()
		}()
	}
	return nil
}

// campaign leads twice.
func campaign(ctx context.Context, e *elector.Elector, o *orders) error {
	for range 2 {
		term, err := e.Campaign(ctx)
		if err != nil {
			return err
		}
		<-term.Context().Done()
		_ = term.Resign(ctx)
		<-o.gate("campaign")
	}
	return nil
}

// A process is a candidate.
type process struct{ *must.Process }

func launch(t *testing.T, s settings) process {
	t.Helper()
	text, err := json.Marshal(s)
	must.Check(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), candidateVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	return process{must.Start(t, cmd)}
}

// logs waits for lines with these messages, in any order, after so many lines.
func (p process) logs(t *testing.T, after int, messages ...string) {
	t.Helper()
	for _, message := range messages {
		if strings.Contains(message, " ") {
			message = fmt.Sprintf("%q", message)
		}
		must.Eventually(t, message, func() bool {
			return slices.ContainsFunc(p.Lines()[after:], func(line string) bool { return strings.Contains(line, " msg="+message+" ") })
		})
	}
}
