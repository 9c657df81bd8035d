//go:build unix

package e2e_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/fence"
)

// writerVariable holds the settings of a writer. It makes the test binary one,
// instead of running the tests.
const writerVariable = "PGELECTOR_E2E_WRITER"

func init() {
	if text := os.Getenv(writerVariable); text != "" {
		os.Exit(beWriter(text))
	}
}

// A way to write is how a leader's writes are fenced.
type way string

const (
	unfenced way = "unfenced" // it checks that it leads, and then writes
	inTx     way = "in tx"    // Term.InTx
	byToken  way = "by token" // fence.Advance, in a store that knows nothing of the election
)

// writerSettings are what a writer's process is told.
type writerSettings struct {
	Driver, DSN, Store, Election, ID string
	Way                              way
	Register                         string        // the table of one row that it writes to
	Lease, Retry                     time.Duration // of its candidate
	Pause                            time.Duration // the longest, between the check and the write
	Lockstep                         bool          // wait for "go" on standard input between the check and the write
}

// A deed is one line of what a writer tells. Times are of the machine's
// monotonic clock, in nanoseconds.
type deed struct {
	ID           string
	Kind         deedKind
	Token        int64
	Call, Return int64  `json:",omitempty"`
	Old, New     string `json:",omitempty"` // what a write replaces, by the writer's memory; what a read has read
	Outcome      string `json:",omitempty"`
	Text         string `json:",omitempty"`
}

type deedKind string

const (
	isReady    deedKind = "ready"
	hasRead    deedKind = "read"    // the register, at the beginning of a term
	hasChecked deedKind = "checked" // that it leads, and goes on to write
	hasWritten deedKind = "written" // or tried to
	hasLeft    deedKind = "left"    // its term
)

const (
	ok      = "ok"
	refused = "refused" // nothing was written
	unknown = "unknown"
)

// A writer leads and writes to a register, as one who remembers what it says:
// it reads it once in a term.
type writer struct {
	writerSettings
	tell        func(deed)
	pool, store *sql.DB
	steps       chan struct{} // in lockstep
	n           int
}

func beWriter(text string) (exit int) {
	w := &writer{steps: make(chan struct{}, 100)}
	if err := json.Unmarshal([]byte(text), &w.writerSettings); err != nil {
		return complain(err)
	}
	out := json.NewEncoder(os.Stdout)
	w.tell = func(d deed) { d.ID = w.ID; _ = out.Encode(d) } // from one goroutine
	var err error
	if w.pool, err = sql.Open(w.Driver, w.DSN); err != nil {
		return complain(err)
	}
	if w.store, err = sql.Open(w.Driver, w.Store); err != nil {
		return complain(err)
	}
	e, err := elector.New(w.pool, w.Election, elector.WithCandidateID(w.ID), elector.WithLease(w.Lease),
		elector.WithHeartbeatInterval(w.Lease/5), elector.WithRetryInterval(w.Retry), elector.WithBackoff(w.Retry, w.Retry))
	if err != nil {
		return complain(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer stop() // the test has ended, or is dead
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			w.steps <- struct{}{}
		}
	}()
	w.tell(deed{Kind: isReady})
	for ctx.Err() == nil {
		term, err := e.Campaign(ctx)
		if err != nil {
			continue
		}
		if err := w.lead(ctx, term); err != nil {
			w.tell(deed{Kind: hasLeft, Token: term.Token(), Text: err.Error()})
		} else {
			w.tell(deed{Kind: hasLeft, Token: term.Token()})
		}
		_ = term.Resign(context.Background())
	}
	return 0
}

// lead writes until the term has ended, or a write has not succeeded.
func (w *writer) lead(ctx context.Context, term *elector.Term) error {
	var value string
	call := monotonic()
	outcome, err := w.do(term, func(tx execer) error {
		return tx.QueryRowContext(context.Background(), "SELECT value FROM "+w.Register).Scan(&value)
	})
	if outcome != ok {
		return err
	}
	w.tell(deed{Kind: hasRead, Token: term.Token(), Call: call, Return: monotonic(), New: value})
	for ctx.Err() == nil {
		w.n++
		next := fmt.Sprint(w.ID, "-", w.n)
		call := monotonic()
		if !term.Valid() { // the check
			return nil
		}
		w.tell(deed{Kind: hasChecked, Token: term.Token()})
		if w.Lockstep {
			select {
			case <-w.steps:
			case <-ctx.Done():
				return nil
			}
		}
		w.pause()
		outcome, err := w.do(term, func(tx execer) error {
			_, err := tx.ExecContext(context.Background(), "UPDATE "+w.Register+" SET value = $1", next)
			w.pause()
			return err
		})
		text := ""
		if err != nil {
			text = err.Error()
		}
		w.tell(deed{Kind: hasWritten, Token: term.Token(), Call: call, Return: monotonic(), Old: value, New: next, Outcome: outcome, Text: text})
		if outcome != ok {
			return err
		}
		value = next
	}
	return nil
}

type execer interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

// do makes one read or write in the writer's way.
func (w *writer) do(term *elector.Term, fn func(execer) error) (outcome string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch w.Way {
	case inTx:
		err = term.InTx(ctx, w.store, nil, func(tx *sql.Tx) error { return fn(tx) })
	case byToken:
		err = w.fenced(ctx, term.Token(), fn)
	default:
		err = fn(w.store)
	}
	switch {
	case err == nil:
		return ok, nil
	case errors.Is(err, elector.ErrOutcomeUnknown):
		return unknown, err
	}
	return refused, err
}

func (w *writer) fenced(ctx context.Context, token int64, fn func(execer) error) error {
	tx, err := w.store.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fence.Advance(ctx, tx, w.Register, token); err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%w: %w", elector.ErrOutcomeUnknown, err)
	}
	return nil
}

func (w *writer) pause() {
	if w.Pause > 0 {
		time.Sleep(rand.N(w.Pause))
	}
}

var registers atomic.Int64

// register makes a table of one row, and the guard rows, in a store.
func makeRegister(store *sql.DB) (name string, err error) {
	name = fmt.Sprint("register_", strings.ReplaceAll(unique("r"), "-", "_"), "_", registers.Add(1))
	_, err = store.Exec("CREATE TABLE " + name + " (value text); INSERT INTO " + name + " VALUES ('')")
	return name, err
}

// A standby is promoted while the old primary still answers: two servers, two
// leaders, and neither can know of the other. The token's timeline tells them
// apart, wherever a third store is written to.
func TestThePromotionOfAStandbyBesideItsPrimaryIsFencedByTheToken(t *testing.T) {
	t.Parallel()
	overDrivers(t, func(t *testing.T, d drivers) {
		primary := own(t)
		standby, err := primary.AddStandby(t.Context())
		check(t, err)
		p, s := on(t, primary), on(t, standby)
		store := onShared(t)
		_, err = store.admin.Exec("SELECT pg_advisory_xact_lock(4711); " + fence.CreateTable)
		check(t, err)

		election := p.election(t)
		var address atomic.Pointer[string] // of the cluster, as its clients know it
		move := func(to *server) { dsn := to.DSN(); address.Store(&dsn) }
		move(p)
		moving := d.openMoving(t, 0, &address)
		_, old := p.lead(t, d.open(t, 0, p.DSN()), election)
		check(t, old.InTx(soon(t), moving, nil, func(*sql.Tx) error { return nil }))

		check(t, standby.Promote(soon(t)))
		move(s)
		_, fresh := s.lead(t, d.open(t, 1, s.DSN()), election)
		if !old.Valid() || old.Verify(soon(t)) != nil {
			t.Error("the old primary no longer answers")
		}
		if fresh.Token()>>48 <= old.Token()>>48 {
			t.Errorf("token %x is not of a later timeline than %x", fresh.Token(), old.Token())
		}
		// Both write, with and without a fence, the old one first.
		for _, how := range []way{unfenced, byToken} {
			register, err := makeRegister(store.admin)
			check(t, err)
			history := &record{}
			first := &openWriter{record: history, id: "old", register: register, how: how, term: old, store: d.open(t, 0, store.DSN())}
			first.write(t, 3)
			second := &openWriter{record: history, id: "new", register: register, how: how, term: fresh, store: d.open(t, 1, store.DSN())}
			second.write(t, 1)
			var both sync.WaitGroup
			both.Go(func() { first.write(t, 20) })
			both.Go(func() { second.write(t, 20) })
			both.Wait()
			want := porcupine.Ok
			if how == unfenced {
				want = porcupine.Illegal
			}
			if got := linearizable(history.deeds); got != want {
				t.Errorf("%s: linearizable: %s, want %s", how, got, want)
			}
			if last := history.of("old"); (last.Outcome == ok) != (how == unfenced) {
				t.Errorf("%s: the old leader's last write was %s (%s)", how, last.Outcome, last.Text)
			}
		}
		// Through the address that has moved, the old term is not one of that server.
		eventually(t, "the pool has reached the promoted server", func() bool {
			err := old.InTx(soon(t), moving, nil, func(tx *sql.Tx) error {
				if one[string](t, tx, "SELECT current_setting('port')") != fmt.Sprint(primary.Port()) {
					t.Error("a transaction of the old term has entered on the promoted server")
				}
				return nil
			})
			moving.SetMaxIdleConns(0) // the next transaction connects anew
			return errors.Is(err, elector.ErrNotLeader)
		})
	})
}

// record is a history that several writers add to.
type record struct {
	mu    sync.Mutex
	deeds []deed
}

func (r *record) add(d deed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deeds = append(r.deeds, d)
}

func (r *record) of(id string) (last deed) {
	for _, d := range r.deeds {
		if d.ID == id {
			last = d
		}
	}
	return last
}

// openWriter is a writer within this process.
type openWriter struct {
	*record
	id, register, value string
	how                 way
	term                *elector.Term
	store               *sql.DB
	read                bool
	n                   int
}

// write writes up to n times, and stops when it is refused.
func (o *openWriter) write(t *testing.T, n int) {
	w := &writer{writerSettings: writerSettings{Way: o.how, Register: o.register}, store: o.store}
	for range n {
		call := monotonic()
		d := deed{ID: o.id, Kind: hasRead, Token: o.term.Token(), Call: call}
		var err error
		if !o.read {
			d.Outcome, err = w.do(o.term, func(tx execer) error {
				return tx.QueryRowContext(t.Context(), "SELECT value FROM "+o.register).Scan(&d.New)
			})
		} else {
			o.n++
			d.Kind, d.Old, d.New = hasWritten, o.value, fmt.Sprint(o.id, "-", o.n)
			d.Outcome, err = w.do(o.term, func(tx execer) error {
				_, err := tx.ExecContext(t.Context(), "UPDATE "+o.register+" SET value = $1", d.New)
				return err
			})
		}
		d.Return = monotonic()
		if err != nil {
			d.Text = err.Error()
		}
		if d.Outcome == ok {
			o.value, o.read = d.New, true
		}
		if d.Outcome == ok || d.Kind == hasWritten {
			o.add(d)
		}
		if d.Outcome != ok {
			return
		}
	}
}
