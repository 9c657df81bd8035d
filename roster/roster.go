package roster

import (
	"context"
	"database/sql"
	"encoding/json"
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

	wake    chan struct{} // something must be written at once
	closing chan struct{} // closed by the first Close
	ended   chan struct{} // closed when the writer has returned
	idle    chan struct{} // holds a value while no driver call runs

	mu       sync.Mutex
	ledger   *ledger
	electors []*elector.Elector
	overflow int64 // dropped terms not yet reported
	metadata json.RawMessage
	running  bool // the writer was started
	closed   bool
	stats    Stats
}

// Stats counts the roster's writes.
type Stats struct {
	Writes   int64 // successful writes
	Failures int64 // failed writes and failed automatic clean-ups
	Waiting  int   // terms that wait to be written
	Dropped  int64 // terms dropped because 1024 waited already
	Err      error // of the last write; nil if it succeeded
}

// maxTimeout bounds a write. A shorter publish interval bounds it too.
const maxTimeout = 5 * time.Second

// silentAfter is how many intervals after its last publication a candidate is silent.
const silentAfter = 3

// New returns a roster on the caller's pool: the elector's, or another of the same
// database. New neither connects nor starts a goroutine; the roster does not close the
// pool. Each read or write borrows one connection. If an argument or option is invalid,
// the error wraps ErrConfig.
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

// SetMetadata replaces the metadata that the candidates publish, and publishes it at once.
// A leader can announce a value with it. The bounds are those of WithMetadata; beyond them
// the error wraps ErrConfig.
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
// The last write may take one publish interval, at most 5 s, and is not retried: if it
// fails, the error wraps ErrClosed. If ctx ends first, the error wraps its cause, and the
// closing goes on.
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
