package dashboard

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/roster"
)

const (
	freshFor      = time.Second     // minimum time between two looks
	idleFor       = 10              // minimum pause, as a multiple of the last look's duration
	lookTimeout   = 5 * time.Second // of one look
	maxPause      = 5 * time.Minute // between two looks while driver calls are stuck
	maxStuckLooks = 16              // of a pool without a limit
)

// A watch looks at the server for any number of viewers: one look at a time, at most once
// per second and for at most a tenth of the time.
//
// On a dead link a driver's call may not return. The watch abandons such a look after
// lookTimeout; the look keeps its connection until it returns. The next look takes another
// connection. The pause grows with each stuck look, and there is no look while maxStuck
// are stuck.
type watch struct {
	look     func(context.Context) (facts, error)
	maxStuck func() int

	mu      sync.Mutex
	last    facts         // of the last successful look
	err     error         // of the last look
	until   time.Time     // when the next look is due
	looking chan struct{} // closed when the current look has ended or is abandoned
	stuck   int           // abandoned looks that have not returned
}

// facts returns recent facts, after a look if one is due. With an error it returns the last
// known facts.
func (w *watch) facts(ctx context.Context) (facts, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.looking == nil && (time.Now().Before(w.until) || w.stuck >= w.maxStuck()) {
		return w.last, w.err
	}
	if w.looking == nil {
		looking := make(chan struct{})
		w.looking = looking
		go backoff.Apart(func() { w.lookOnce(looking) })()
	}
	looking := w.looking
	w.mu.Unlock()
	var cancelled error
	select {
	case <-looking:
	case <-ctx.Done():
		cancelled = context.Cause(ctx)
	}
	w.mu.Lock()
	if cancelled != nil {
		return w.last, cancelled
	}
	return w.last, w.err
}

// lookOnce makes one look. It does not use the viewer's context, because others wait too.
func (w *watch) lookOnce(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	defer time.AfterFunc(lookTimeout, func() { w.abandon(done) }).Stop()
	began := time.Now()
	seen, err := w.look(ctx)
	seen.seen = time.Now()
	seen.clip()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.looking != done {
		w.returned(seen, err)
		return
	}
	w.err, w.until, w.looking = err, seen.seen.Add(freshFor), nil
	if err == nil {
		w.last, w.until = seen, seen.seen.Add(max(freshFor, idleFor*seen.seen.Sub(began)))
	}
	close(done)
}

// abandon gives up waiting for a look.
func (w *watch) abandon(done chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.looking != done {
		return // already returned
	}
	pause := maxPause
	if w.stuck < 6 { // 5 s << 6 is more than maxPause
		pause = min(lookTimeout<<w.stuck, maxPause)
	}
	w.stuck++
	w.err, w.until, w.looking = fmt.Errorf("the server does not answer: %w", context.DeadlineExceeded), time.Now().Add(pause), nil
	close(done)
}

// returned records a look that returned after it was abandoned. Another look is soon due:
// the link works again, or the driver gave up.
func (w *watch) returned(seen facts, err error) {
	w.stuck--
	if soon := time.Now().Add(freshFor); w.until.After(soon) {
		w.until = soon
	}
	if err == nil && seen.at.After(w.last.at) {
		w.last = seen
	}
}

// facts are the result of one look at the server.
type facts struct {
	at         time.Time // on the server's clock; zero before the first look
	seen       time.Time // on this process's clock
	locks      []db.AdvisoryLocksRow
	candidates []roster.Candidate
	terms      []roster.Term
	rosterErr  error // why the roster could not be read
}

// source looks at the server.
type source struct {
	pool   *sql.DB
	roster *roster.Roster
	names  []string
	groups []shards
}

// maxStuck returns how many connections may be stuck: half of the pool's.
func (s source) maxStuck() int {
	if most := s.pool.Stats().MaxOpenConnections; most > 0 {
		return min(max(most/2, 1), maxStuckLooks)
	}
	return maxStuckLooks
}

// look asks the server. A roster that cannot be read is no failure: the server knows who
// leads.
func (s source) look(ctx context.Context) (facts, error) {
	f, err := pooled.Ask(ctx, s.pool, func(q db.DBTX) (facts, error) { return ask(ctx, db.New(q)) })
	if err != nil {
		return f, err
	}
	if s.roster != nil {
		f.candidates, f.rosterErr = s.roster.Candidates(ctx)
	}
	all, _ := group(f.withoutShards(s.groups), s.names, s.roster != nil)
	var keys []int64
	for _, g := range all {
		keys = append(keys, g.key)
	}
	if s.roster != nil && f.rosterErr == nil && len(keys) > 0 {
		f.terms, f.rosterErr = s.roster.Terms(ctx, min(maxTerms, max(maxTermsInAll/len(keys), 1)), keys...)
	}
	if len(s.names) == 0 && s.roster == nil {
		keys = nil // they are those of the locks
	}
	if len(f.locks) >= db.MostRows { // a leader may be missing
		for _, g := range s.groups {
			keys = slices.AppendSeq(slices.AppendSeq(keys, maps.Keys(g.shards)), maps.Keys(g.seats))
		}
		locks := f.locks
		f.locks, err = pooled.Ask(ctx, s.pool, func(q db.DBTX) ([]db.AdvisoryLocksRow, error) { return askOf(ctx, db.New(q), locks, keys) })
	}
	return f, err
}

// askOf returns locks, in which it replaces the locks of the elections with these keys by a new answer.
func askOf(ctx context.Context, q *db.Queries, locks []db.AdvisoryLocksRow, keys []int64) ([]db.AdvisoryLocksRow, error) {
	slices.Sort(keys)
	keys = slices.Compact(keys)
	all := without(locks, func(row db.AdvisoryLocksRow) bool { _, ours := slices.BinarySearch(keys, row.Key); return ours })
	for some := range slices.Chunk(keys, db.MostRows/10) {
		rows, err := q.AdvisoryLocks(ctx, db.Keys(some...))
		if err != nil {
			return nil, fmt.Errorf("ask who leads: %w", err)
		}
		all = append(all, rows...)
	}
	return all, nil
}

func ask(ctx context.Context, q *db.Queries) (f facts, err error) {
	ping, err := q.Ping(ctx)
	if err != nil {
		return f, fmt.Errorf("ask the server: %w", err)
	}
	if ping.InRecovery {
		return f, elector.ErrServerReadOnly
	}
	micros, err := q.Clock(ctx)
	if err != nil {
		return f, fmt.Errorf("ask for the server's time: %w", err)
	}
	f.at = time.UnixMicro(micros)
	if f.locks, err = q.AdvisoryLocks(ctx, db.Keys()); err != nil {
		return facts{}, fmt.Errorf("ask who leads: %w", err)
	}
	return f, nil
}
