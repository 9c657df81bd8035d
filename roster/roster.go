package roster

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// A Roster records candidates and terms as a hook of electors, and tells what was
// recorded. Its methods may be called from any goroutine.
type Roster struct {
	config
	pool       *sql.DB
	migrations []string
	timeout    time.Duration // of a write

	wake    chan struct{} // there is something to write
	closing chan struct{} // closed by the first Close
	ended   chan struct{} // closed when the writer has gone
	idle    chan struct{} // holds one value, unless a driver call goes on

	mu       sync.Mutex
	ledger   *ledger
	overflow int64 // terms dropped that OnError was not told of yet
	metadata json.RawMessage
	running  bool // there is, or was, a writer
	closed   bool
	stats    Stats
}

// Stats is how the writing goes.
type Stats struct {
	Writes   int64 // that succeeded
	Failures int64 // writes, and automatic clean-ups, that did not
	Waiting  int   // terms to be written
	Dropped  int64 // terms that were given up, because 1024 waited already
	Err      error // of the last write; nil if it succeeded
}

// maxTimeout bounds a write; an interval that is shorter bounds it too.
const maxTimeout = 5 * time.Second

// silentAfter is after how many intervals without a publication a candidate
// counts as silent.
const silentAfter = 3

// New makes a roster on a pool that the caller keeps and closes: the elector's
// own, or another of the same database. It connects to nothing and starts nothing.
// Writing and reading each borrow one connection of the pool for a moment.
//
// An argument or option that cannot be used is an error that wraps ErrConfig.
func New(pool *sql.DB, opts ...Option) (*Roster, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: the pool is nil: pass the *sql.DB of your PostgreSQL", ErrConfig)
	}
	c, err := configure(opts)
	if err != nil {
		return nil, err
	}
	r := &Roster{config: c, pool: pool, migrations: migrations, timeout: min(c.interval, maxTimeout), ledger: newLedger(silentAfter * c.interval),
		metadata: c.metadata, wake: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{}),
		idle: make(chan struct{}, 1)}
	r.idle <- struct{}{}
	return r, nil
}

// SetMetadata replaces what the candidates publish besides, and has it
// published at once: a value that the leader proclaims, for instance. Its bounds
// are those of WithMetadata, and a bad one is an error that wraps ErrConfig.
func (r *Roster) SetMetadata(metadata map[string]string) error {
	text, err := encodeMetadata(metadata)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.metadata = text
	r.ledger.republish()
	r.wakeUp()
	return nil
}

// Stats tells how the writing goes. It asks no server.
func (r *Roster) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Waiting, s.Dropped = len(r.ledger.waiting), r.ledger.dropped
	return s
}

// Close writes what waits, marks the candidates as [Left], and ends the roster's
// goroutine. Call it when the electors have stopped: what they tell later is
// ignored. It is idempotent, and does not close the pool.
//
// The last write is given one interval, 5 s at the most, and is not repeated: if
// it fails, the error wraps ErrClosed. If ctx ends first, the error wraps its
// cause, and the closing goes on. A closed roster can still be read.
func (r *Roster) Close(ctx context.Context) error {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.closing)
	}
	running := r.running
	r.mu.Unlock()
	if !running {
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
