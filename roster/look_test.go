package roster

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// answerer answers each statement of the roster.
type answerer func(ctx context.Context, statement string) ([][]driver.Value, error)

func (t answerer) Connect(context.Context) (driver.Conn, error) { return t, nil }
func (t answerer) Driver() driver.Driver                        { return nil }
func (t answerer) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (t answerer) Close() error                                 { return nil }
func (t answerer) Begin() (driver.Tx, error)                    { return t, nil }
func (t answerer) Commit() error                                { return nil }
func (t answerer) Rollback() error                              { return nil }

func (t answerer) ExecContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	_, err := t.answer(ctx, query)
	return driver.RowsAffected(0), err
}

func (t answerer) QueryContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	all, err := t.answer(ctx, query)
	return &rows{all}, err
}

func (t answerer) answer(ctx context.Context, query string) ([][]driver.Value, error) {
	if query == db.RollBackAndChain {
		return nil, nil
	}
	return t(ctx, strings.Fields(query)[2]) // -- name: Publish :exec
}

type rows struct{ left [][]driver.Value }

func (r *rows) Columns() []string { return make([]string, 18) } // of Candidates
func (r *rows) Close() error      { return nil }

func (r *rows) Next(row []driver.Value) error {
	if len(r.left) == 0 {
		return io.EOF
	}
	copy(row, r.left[0])
	r.left = r.left[1:]
	return nil
}

// on returns a roster on the tables.
func on(t *testing.T, answers answerer) *Roster {
	t.Helper()
	pool := sql.OpenDB(answers)
	t.Cleanup(func() { pool.Close() })
	r, err := New(pool)
	check(t, err)
	return r
}

// A process that was killed leaves a row that is live for a while. The next one with its id
// may be elected before it has published.
func TestAnObserverSeesNothingOfTheLeadersPreviousLife(t *testing.T) {
	for name, c := range map[string]struct {
		before time.Duration // that row was published this long before the election
		shared bool
		first  bool // the leader is seen in its first moment, by another role
	}{
		"that ended long before":        {before: 10 * time.Second},
		"that ended in the same second": {before: 300 * time.Millisecond},
		"on a shared session":           {before: 300 * time.Millisecond, shared: true},
		"in the first moment of a term": {before: 10 * time.Second, first: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := electortest.NewServer()
				defer server.Close()
				pool := server.Open()
				defer pool.Close()
				time.Sleep(time.Minute + 500*time.Millisecond) // the server tells full seconds
				previous := []driver.Value{nil, "orders", "web-1", "", nil, nil, nil, "", "{}", int64(0), `{"life": "previous"}`, int64(0), time.Now().Add(-c.before).UnixMicro(), int64(0), true, int64(45_000), true, false}
				e, err := elector.New(pool, "orders", elector.WithCandidateID("web-1"))
				check(t, err)
				if c.shared {
					session, err := elector.NewSession(pool, elector.WithCandidateID("web-1"))
					check(t, err)
					defer session.Close(context.Background())
					e, err = session.Elector("orders")
					check(t, err)
				}
				term, err := e.Campaign(t.Context())
				check(t, err)
				previous[0] = e.Key()
				asked := 0
				r := on(t, func(context.Context, string) ([][]driver.Value, error) {
					row := slices.Clone(previous)
					if asked++; asked > 2 {
						row[10], row[12] = `{"life": "this"}`, time.Now().UnixMicro()
					}
					return [][]driver.Value{row}, nil
				})
				var seen Candidate
				if c.first {
					leader, err := e.Leader(t.Context())
					check(t, err)
					leader.ElectedAt, leader.SessionAt = time.Time{}, time.Time{}
					seen, err = r.published(t.Context(), e, leader)
					check(t, err)
				} else {
					for leader, err := range r.Observe(t.Context(), e) {
						check(t, err)
						seen = leader.Published
						break
					}
				}
				if seen.Metadata["life"] != "this" {
					t.Errorf("seen was %+v", seen)
				}
				check(t, term.Resign(t.Context()))
			})
		})
	}
}

// deadLink connects to nothing for a day; like lib/pq also when ctx ends, or like pgx only until then.
type deadLink string

func (d deadLink) Connect(ctx context.Context) (driver.Conn, error) {
	ended := ctx.Done()
	if d == "pq" {
		ended = nil
	}
	select {
	case <-time.After(24 * time.Hour):
	case <-ended:
	}
	return nil, errors.New("no route to host")
}

func (deadLink) Driver() driver.Driver { return nil }

func TestAnObserverHearsWithinALeaseThatTheTablesDoNotAnswer(t *testing.T) {
	for _, like := range []deadLink{"pq", "pgx"} {
		t.Run(string(like), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := electortest.NewServer()
				defer server.Close()
				pool := server.Open()
				defer pool.Close()
				e, err := elector.New(pool, "orders")
				check(t, err)
				term, err := e.Campaign(t.Context())
				check(t, err)
				tables := sql.OpenDB(like)
				defer tables.Close()
				r, err := New(tables)
				check(t, err)
				began := time.Now()
				for leader, err := range r.Observe(t.Context(), e) {
					if leader.Leader.PID == 0 || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %+v, %v", leader, err)
					}
					break
				}
				if took := time.Since(began); took > e.Settings().Lease+time.Second {
					t.Errorf("after %v", took)
				}
				check(t, term.Resign(t.Context()))
				time.Sleep(48 * time.Hour) // until the drivers return
			})
		})
	}
}
