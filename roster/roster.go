// Package roster records candidates and terms in two tables of the election's database:
// who stands for election, how healthy they are, and who led when. Elections need no
// table, and never read these.
//
//	candidates, err := roster.New(pool, roster.WithVersion("1.4.2"))
//	err = candidates.Migrate(ctx) // once, or at each start
//	e, err := elector.New(pool, "orders")
//	err = candidates.Add(e)
//	…                       // run the elector until it has stopped
//	err = candidates.Close(ctx)
//
// # What is not promised
//
//   - The roster never decides who leads. Without its tables, or without the right to
//     write them, no term ends and no candidate is elected later.
//   - It may be late or incomplete. It retries failed writes. If more than 1024 terms
//     wait, it drops the oldest and counts them in [Stats]. It drops a row that the server
//     refuses. In a database whose encoding lacks a character, it writes '?' instead.
//   - It is no audit log. Whoever may write the tables may write anything into them.
//
// # Candidates
//
// A [Roster] is a hook for any number of electors. It never makes an elector wait: one
// goroutine does all the writing. A Roster that is nobody's hook only reads.
//
// The roster publishes a candidate at its first event, when it is elected, within a second of a change of
// its health ([Roster.Add]), for which it writes at most once a second, and once per publish interval: one statement for all candidates, about 200 bytes of WAL for each,
// with an asynchronous commit. A candidate is [Live] for three intervals after a publication,
// then [Silent]: it was killed, or cannot reach the database. It has [Left] if its Roster
// was closed, or if its elector has stopped and reported nothing for some intervals.
//
// # Terms
//
// The roster writes a term when it begins and again when it ends, each time at once. If
// the candidate does not report the end, the reason is [Lost], and the term ended when
// the next one began. Until there is a next one, the term goes on for as long as
// pg_locks shows that its candidate holds the lock. If the lock is free, the end is
// unknown.
//
// # Times
//
// All times are the server's. A process tells the server how long ago something happened,
// so clocks of different machines are never compared. After the promotion of a standby
// the times are the new server's.
package roster

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// A Roster records candidates and terms as a hook of electors, and returns the records.
// Its methods may be called from any goroutine.
type Roster struct {
	config
	pool       *sql.DB
	migrations []string
	timeout    time.Duration // of a write

	wake    chan struct{}   // something must be written at once
	closing context.Context // ends with the first Close
	close   context.CancelFunc
	ended   chan struct{} // closed when the writer has returned
	idle    chan struct{} // holds a value while no driver call runs

	mu       sync.Mutex
	ledger   *ledger
	electors []*elector.Elector
	unhook   map[*elector.Elector]func() // what Add has added to their hooks
	overflow int64                       // dropped terms not yet reported
	metadata json.RawMessage
	running  bool      // the writer was started
	closeBy  time.Time // when the last write ends at the latest; set by the first Close
	stats    Stats

	// Touched by the writing goroutine alone.
	failing  time.Time // since when writes fail; zero if they do not
	dropping bool      // since then it was told that terms are dropped
}

// Stats counts the roster's writes.
type Stats struct {
	Writes   int64 // successful writes
	Failures int64 // failed writes and failed automatic clean-ups
	Waiting  int   // terms that wait to be written
	Dropped  int64 // terms dropped because 1024 waited already, or because the server refuses them
	Err      error // of the last write; nil if it succeeded
}

// maxTimeout bounds a write. A shorter publish interval bounds it too.
const maxTimeout = 5 * time.Second

// silentAfter is how many intervals after its last publication a candidate is silent.
const silentAfter = 3

// New returns a roster on the caller's pool: the elector's, or another of the same
// database. New neither connects nor starts a goroutine; the roster does not close the
// pool. Each read or write borrows one connection. If an argument or option is invalid,
// the error wraps elector.ErrConfig.
func New(pool *sql.DB, opts ...Option) (*Roster, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: the pool is nil: pass the *sql.DB of your PostgreSQL", elector.ErrConfig)
	}
	c, err := configure(opts)
	if err != nil {
		return nil, err
	}
	r := &Roster{config: c, pool: pool, migrations: migrations, timeout: min(c.interval, maxTimeout), ledger: newLedger(silentAfter * c.interval), unhook: map[*elector.Elector]func(){},
		metadata: c.metadata, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		idle: make(chan struct{}, 1)}
	r.closing, r.close = context.WithCancel(context.Background())
	r.idle <- struct{}{}
	return r, nil
}

// SetMetadata replaces the metadata that the candidates publish, and publishes it at once.
// A leader can announce a value with it. The bounds are those of WithMetadata; beyond them
// the error wraps elector.ErrConfig.
func (r *Roster) SetMetadata(metadata map[string]string) error {
	text, err := encodeMetadata(metadata)
	if err != nil {
		return fmt.Errorf("%w: %w", elector.ErrConfig, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.metadata = text
	r.ledger.republish()
	r.wakeUp()
	return nil
}

// SetElectionMetadata replaces, for one election, what its candidate publishes instead of the metadata of
// SetMetadata, and publishes it at once; nil has it publish that again. The bounds are the same.
func (r *Roster) SetElectionMetadata(e *elector.Elector, metadata map[string]string) error {
	text, err := encodeMetadata(metadata)
	if err != nil {
		return fmt.Errorf("%w: %w", elector.ErrConfig, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k := candidateKey{e.Key(), e.CandidateID()}
	if r.ledger.of[k] = text; metadata == nil {
		delete(r.ledger.of, k)
	}
	r.ledger.republish()
	r.wakeUp()
	return nil
}

// Stats returns the counts. It does not ask the server.
func (r *Roster) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Waiting, s.Dropped = len(r.ledger.waiting), r.ledger.dropped
	return s
}

// Close writes what waits, marks the candidates as [Left], and ends the roster's
// goroutine. Call it when the electors have stopped: the roster ignores later events.
// Close is idempotent. A closed roster can still be read.
//
// A write that is under way and the last one may take one publish interval together, at
// most 5 s. The last one is not retried: if it fails, the error wraps ErrClosed. If ctx ends
// first, the error wraps its cause, and the closing goes on.
func (r *Roster) Close(ctx context.Context) error {
	r.mu.Lock()
	if r.closing.Err() == nil {
		r.closeBy = time.Now().Add(r.timeout)
		r.close()
	}
	running := r.running
	forgotten := !running && string(r.metadata) != "{}"
	r.mu.Unlock()
	switch {
	case forgotten:
		return ErrNoElector
	case !running:
		return nil
	}
	select {
	case <-r.ended:
	case <-ctx.Done():
		return fmt.Errorf("roster: close: the last write goes on: %w", context.Cause(ctx))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stats.Err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, r.stats.Err)
	}
	return nil
}

// Every error that this package returns or reports wraps one of these, elector.ErrConfig (an
// argument or option is invalid), the cause of a context that ended, or the driver's error.
var (
	// ErrNotMigrated is returned if the tables do not exist or are too old.
	ErrNotMigrated = errors.New("roster: the tables are missing or too old: call Migrate, or start pgelector lead --roster once, as a role that may CREATE on the database")

	// ErrNoPrivilege is returned if the role lacks a privilege on the tables, or if row level security refuses
	// its rows. Both have SQLSTATE 42501; the server's error, which follows, says which.
	ErrNoPrivilege = errors.New("roster: the role lacks a privilege on the roster's schema or tables: GRANT it (docs/observing.md has the statements); " +
		"or, if the error names row-level security, no policy of the table lets the role write the row: CREATE POLICY, or DISABLE ROW LEVEL SECURITY")

	// ErrStuck is reported if a write is due while the driver has not returned from an
	// earlier one that timed out.
	ErrStuck = errors.New("roster: the last write has not returned from the driver: check the network")

	// ErrDropped is reported if terms are dropped because too many wait to be written, and once
	// for each row that the server refuses, such as one that a constraint forbids.
	ErrDropped = errors.New("roster: rows were dropped")

	// ErrNoElector is returned by Close if there is metadata to publish, and the Roster was no elector's
	// hook, so that it has published nothing. One that only reads has no metadata.
	ErrNoElector = errors.New("roster: nothing was published, because no elector was added: call Roster.Add")

	// ErrClosed is returned by Close if the last write failed.
	ErrClosed = errors.New("roster: closed, but the last write failed")
)

// explain wraps the sentinel that tells an operator what to do.
func explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	switch sqlState(err) {
	case "3F000", "42P01", "42703": // no such schema, table or column
		return fmt.Errorf("%w (failed to %s): %w", ErrNotMigrated, doing, err)
	case "42501":
		return fmt.Errorf("%w (failed to %s): %w", ErrNoPrivilege, doing, err)
	}
	return fmt.Errorf("roster: %s: %w", doing, err)
}

// sqlState returns the SQLSTATE of a driver's error, or "".
func sqlState(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}
