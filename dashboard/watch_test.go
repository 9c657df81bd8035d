package dashboard

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/roster"
)

var errAway = errors.New("connection refused")

func TestTheServerIsQueriedOncePerSecondHoweverManyViewersThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		w := &watch{maxStuck: many, look: func(context.Context) (facts, error) {
			looks.Add(1)
			time.Sleep(100 * time.Millisecond)
			return facts{at: time.Now()}, nil
		}}
		var viewers sync.WaitGroup
		for range 100 {
			viewers.Go(func() {
				for range 100 { // ten seconds
					if f, err := w.facts(t.Context()); err != nil || time.Since(f.at) > freshFor+100*time.Millisecond {
						t.Errorf("got facts of %v, %v", f.at, err)
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		viewers.Wait()
		if n := looks.Load(); n < 9 || n > 11 {
			t.Errorf("%d looks in ten seconds", n)
		}
		time.Sleep(time.Hour)
		if n := looks.Load(); n > 11 {
			t.Errorf("%d looks without a viewer", n)
		}
	})
}

func TestAServerThatAnswersSlowlyIsQueriedLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		w := &watch{maxStuck: many, look: func(context.Context) (facts, error) {
			looks++
			time.Sleep(time.Second)
			return facts{at: time.Now()}, nil
		}}
		for began := time.Now(); time.Since(began) < 110*time.Second; time.Sleep(100 * time.Millisecond) {
			if _, err := w.facts(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if looks < 9 || looks > 11 {
			t.Errorf("%d looks of a second each in 110 seconds, want a tenth of the time", looks)
		}
	})
}

func many() int { return maxStuckLooks }

func TestViewersDoNotWaitForAStuckLookAndAnotherFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		hang := make(chan struct{})
		w := &watch{maxStuck: many, look: func(context.Context) (facts, error) {
			began := time.Now()
			if looks.Add(1) == 2 {
				<-hang
			}
			return facts{at: began}, nil
		}}
		first, err := w.facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * freshFor)
		var viewers sync.WaitGroup
		for range 10 {
			viewers.Go(func() {
				began := time.Now()
				f, err := w.facts(t.Context())
				if !errors.Is(err, context.DeadlineExceeded) || f.at != first.at || time.Since(began) != lookTimeout {
					t.Errorf("after %v got facts of %v, %v", time.Since(began), f.at, err)
				}
			})
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, err := w.facts(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a viewer who left got %v", err)
		}
		viewers.Wait()
		began := time.Now()
		if f, err := w.facts(t.Context()); !errors.Is(err, context.DeadlineExceeded) || f.at != first.at || time.Now() != began {
			t.Errorf("while the first look is stuck: after %v facts of %v, %v", time.Since(began), f.at, err)
		}
		if n := looks.Load(); n != 2 {
			t.Errorf("%d looks while one is under way", n)
		}
		time.Sleep(lookTimeout)
		now, err := w.facts(t.Context())
		if err != nil || now.at != time.Now() || looks.Load() != 3 {
			t.Errorf("while the second look is stuck, %d looks, and facts of %v, %v", looks.Load(), now.at, err)
		}
		close(hang) // its answer is older than what is known
		synctest.Wait()
		if f, err := w.facts(t.Context()); err != nil || f.at != now.at || w.stuck != 0 {
			t.Errorf("when it has returned: facts of %v, %v, and %d looks are stuck", f.at, err, w.stuck)
		}
	})
}

func TestTheNumberOfStuckLooksIsLimited(t *testing.T) {
	for _, room := range []int{1, 3, maxStuckLooks} {
		synctest.Test(t, func(t *testing.T) {
			var looks atomic.Int64
			hang := make(chan struct{})
			defer synctest.Wait()
			defer close(hang)
			w := &watch{maxStuck: func() int { return room }, look: func(context.Context) (facts, error) {
				looks.Add(1)
				<-hang
				return facts{at: time.Now()}, nil
			}}
			for began := time.Now(); time.Since(began) < 15*time.Minute; time.Sleep(time.Second) {
				if _, err := w.facts(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("got %v", err)
				}
			}
			if n := looks.Load(); n > int64(room) || n > 9 || n < int64(min(room, 7)) {
				t.Errorf("in a quarter of an hour %d looks, with room for %d", n, room)
			}
		})
	}
}

func TestALookThatReturnsLateIsFollowedByAnotherSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		w := &watch{maxStuck: func() int { return 1 }, look: func(context.Context) (facts, error) {
			<-hang
			return facts{at: time.Now()}, nil
		}}
		_, _ = w.facts(t.Context())
		time.Sleep(time.Hour)
		if f, err := w.facts(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !f.at.IsZero() {
			t.Errorf("got facts of %v, %v", f.at, err)
		}
		close(hang)
		synctest.Wait()
		time.Sleep(freshFor)
		if f, err := w.facts(t.Context()); err != nil || f.at != time.Now() {
			t.Errorf("got facts of %v, %v", f.at, err)
		}
	})
}

func TestTheFirstViewerMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watch{maxStuck: many, look: func(ctx context.Context) (facts, error) {
			select {
			case <-time.After(2 * time.Second):
				return facts{at: time.Now()}, nil
			case <-ctx.Done():
				return facts{}, ctx.Err()
			}
		}}
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		go func() { _, _ = w.facts(ctx) }()
		synctest.Wait()
		if _, err := w.facts(t.Context()); err != nil {
			t.Errorf("the second viewer got %v", err)
		}
	})
}

func TestTheLastFactsAreShownWhileTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away error
		w := &watch{maxStuck: many, look: func(context.Context) (facts, error) { return facts{at: time.Now()}, away }}
		before, err := w.facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		away = errAway
		time.Sleep(freshFor)
		if f, err := w.facts(t.Context()); !errors.Is(err, errAway) || f.at != before.at {
			t.Errorf("got facts of %v, %v", f.at, err)
		}
	})
}

// keys matches a JSON array with that many keys.
type keys int

func (n keys) Match(v driver.Value) bool {
	var all []int64
	text, _ := v.(string)
	return json.Unmarshal([]byte(text), &all) == nil && len(all) == int(n)
}

func TestTheTermsOfManyElectionsAreReadInABoundedNumber(t *testing.T) {
	for _, c := range []struct{ elections, terms int }{{0, 0}, {3, maxTerms}, {100, maxTerms}, {200, 25}, {6000, 1}} {
		pool, mock, err := sqlmock.New()
		if err != nil {
			t.Fatal(err)
		}
		mock.ExpectBegin()
		mock.ExpectQuery("-- name: Ping").WillReturnRows(sqlmock.NewRows([]string{"pid", "in_recovery", "rung"}).AddRow(1, false, false))
		mock.ExpectQuery("-- name: Clock").WillReturnRows(sqlmock.NewRows([]string{"micros"}).AddRow(1))
		mock.ExpectQuery("-- name: AdvisoryLocks").WillReturnRows(sqlmock.NewRows([]string{"key"}))
		mock.ExpectRollback()
		mock.ExpectBegin()
		candidates := sqlmock.NewRows([]string{"key", "election", "candidate_id", "version", "health", "healthy", "minimum", "why", "health_metadata", "checked_micros", "metadata", "since_micros", "published_micros", "left_micros", "live", "expires_millis", "leads", "deputy"})
		for i := range c.elections {
			candidates.AddRow(i, fmt.Sprint(i), "one", "", nil, nil, nil, "", "{}", 0, "{}", time.Now().UnixMicro(), time.Now().UnixMicro(), 0, true, 45_000, false, false)
		}
		mock.ExpectQuery("-- name: Candidates").WithArgs("[]").WillReturnRows(candidates)
		mock.ExpectRollback()
		if c.terms > 0 {
			mock.ExpectBegin()
			mock.ExpectQuery("-- name: Terms").WithArgs(keys(c.elections), c.terms).WillReturnRows(sqlmock.NewRows([]string{"key"}))
			mock.ExpectRollback()
		}
		r, err := roster.New(pool)
		if err != nil {
			t.Fatal(err)
		}
		f, err := source{pool: pool, roster: r}.look(t.Context())
		if err != nil || f.rosterErr != nil || len(f.candidates) != c.elections {
			t.Errorf("%d elections: got %d candidates, %v, %v", c.elections, len(f.candidates), err, f.rosterErr)
		}
		if err := mock.ExpectationsWereMet(); err != nil {
			t.Error(err)
		}
		pool.Close()
	}
}

// detour is a connector that takes its first connection from the first pool, and all others
// from the second.
type detour struct {
	first, second *sql.DB
	connections   atomic.Int64
}

func (d *detour) Connect(ctx context.Context) (conn driver.Conn, err error) {
	pool := d.second
	if d.connections.Add(1) == 1 {
		pool = d.first
	}
	lent, err := pool.Conn(ctx) // it is never returned
	if err != nil {
		return nil, err
	}
	err = lent.Raw(func(raw any) error {
		conn = raw.(driver.Conn)
		return nil
	})
	if pool == d.first {
		conn = deaf{conn}
	}
	return conn, err
}

// A deaf connection ignores the end of a context.
type deaf struct{ driver.Conn }

func (d deaf) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return d.Conn.(driver.ConnBeginTx).BeginTx(context.WithoutCancel(ctx), opts)
}

func (d *detour) Driver() driver.Driver { return d.first.Driver() }

// The server lists the locks with the lowest keys.
func TestALeaderIsShownAlthoughAnotherProgramHasMoreLocksThanAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		pool := server.Open()
		defer pool.Close()
		conn, err := pool.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		type one struct {
			Key int64 `json:"key"`
		}
		locks := []one{{elector.KeyFromName("orders")}}
		for i := range db.MostRows {
			locks = append(locks, one{math.MinInt64 + int64(i)})
		}
		text, _ := json.Marshal(locks)
		if _, err := db.New(conn).TryLocks(t.Context(), string(text)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(db.AdvisoryLocks, fmt.Sprintf("LIMIT %d", db.MostRows)) {
			t.Error("db.MostRows is not the limit of the statement")
		}
		page, err := New(pool, WithElections("orders"))
		if err != nil {
			t.Fatal(err)
		}
		if w := get(page, "GET", "/"); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "nobody leads") {
			t.Errorf("got %d:\n%s", w.Code, w.Body)
		}
	})
}

// As with lib/pq, a call on a cut connection returns only when the network is repaired. The
// page asks on another connection, and says how old its data is.
func TestAStuckDriverCallFailsThePageOnlyForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		dead, alive := server.NewProcess(), server.NewProcess()
		d := &detour{first: dead.Open(), second: alive.Open()}
		defer d.first.Close()
		defer d.second.Close()
		pool := sql.OpenDB(d)
		defer pool.Close()
		page, err := New(pool, WithElections("orders"))
		if err != nil {
			t.Fatal(err)
		}
		expect := func(when string, status int, texts ...string) {
			t.Helper()
			w := get(page, "GET", "/")
			for _, text := range texts {
				if w.Code != status || !strings.Contains(w.Body.String(), text) {
					t.Errorf("%s: got %d, want %d and %q:\n%s", when, w.Code, status, text, w.Body)
				}
			}
		}
		expect("at first", http.StatusOK, "orders")
		dead.Cut(electortest.Both)
		time.Sleep(3 * time.Minute)
		expect("when the network is cut", http.StatusServiceUnavailable, "does not answer", "at the last look, 3 min 5 s ago", "orders")
		time.Sleep(2 * lookTimeout)
		expect("while the call has not returned", http.StatusOK, "orders")
		if page.watch.stuck != 1 || d.connections.Load() != 2 {
			t.Errorf("%d looks are stuck, of %d connections", page.watch.stuck, d.connections.Load())
		}
		dead.Mend()
		synctest.Wait()
		if page.watch.stuck != 0 {
			t.Errorf("%d looks are stuck when the network is mended", page.watch.stuck)
		}
	})
}
