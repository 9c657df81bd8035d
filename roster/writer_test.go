package roster

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/hooks"
	"go.uber.org/goleak"
)

// away is a database that is unreachable, or whose driver does not return.
type away struct {
	hang chan struct{} // if not nil, calls hang until it is closed

	mu    sync.Mutex
	tried []time.Time
}

var errAway = errors.New("connection refused")

func (a *away) Connect(context.Context) (driver.Conn, error) {
	a.mu.Lock()
	a.tried = append(a.tried, time.Now())
	a.mu.Unlock()
	if a.hang != nil {
		<-a.hang
	}
	return nil, errAway
}

func (a *away) Driver() driver.Driver { return nil }

func (a *away) tries() []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tried
}

// onAway returns a roster on an unreachable database, and the errors passed to OnError.
func onAway(t *testing.T, a *away, opts ...Option) (*Roster, func() []error) {
	t.Helper()
	var mu sync.Mutex
	var reported []error
	pool := sql.OpenDB(a)
	t.Cleanup(func() { pool.Close() })
	r, err := New(pool, append(opts, WithOnError(func(err error) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, err)
	}))...)
	if err != nil {
		t.Fatal(err)
	}
	return r, func() []error {
		mu.Lock()
		defer mu.Unlock()
		return reported
	}
}

func TestTheHookDoesNotWaitForADriverThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &away{hang: make(chan struct{})}
		r, errs := onAway(t, a)
		began := time.Now()
		for token := range int64(2 * maxWaiting) {
			e := hooks.Elected{Origin: one, Token: token, At: time.Now()}
			r.OnCampaign(t.Context(), hooks.Campaign{Origin: one, At: time.Now()})
			r.OnElected(t.Context(), e)
			r.OnDemoted(t.Context(), hooks.Demoted{Origin: one, Token: token, At: time.Now()})
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the hook has waited for %v", waited)
		}
		if s := r.Stats(); s.Waiting != maxWaiting || s.Dropped != maxWaiting {
			t.Errorf("got %+v, want %d waiting, and as many dropped", s, maxWaiting)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(a.tries()); n != 1 {
			t.Errorf("%d calls were made while the first has not returned", n)
		}
		if s := r.Stats(); !errors.Is(s.Err, ErrStuck) || s.Failures < 3 {
			t.Errorf("got %+v, want failures, and that it is stuck", s)
		}
		for _, sentinel := range []error{context.DeadlineExceeded, ErrDropped} {
			if !errors.Is(errors.Join(errs()...), sentinel) {
				t.Errorf("OnError was not called with %v: %v", sentinel, errs())
			}
		}
		if err := r.Close(t.Context()); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrStuck) {
			t.Errorf("Close returned %v", err)
		}
		close(a.hang)
	})
}

func TestCloseWaitsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &away{hang: make(chan struct{})}
		r, _ := onAway(t, a)
		r.OnElected(t.Context(), hooks.Elected{Origin: one, Token: 7, At: time.Now()})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("Close returned %v after %v", err, time.Since(began))
		}
		close(a.hang)
		if err := r.Close(t.Context()); !errors.Is(err, ErrClosed) { // the first went on
			t.Errorf("the second Close returned %v", err)
		}
	})
}

// The write under way and the last one have one timeout together.
func TestCloseTakesNoLongerThanOneWrite(t *testing.T) {
	for name, roster := range map[string]func(*testing.T, chan struct{}) *Roster{
		"of a server that does not answer": func(t *testing.T, _ chan struct{}) *Roster {
			return on(t, func(ctx context.Context, _ string) ([][]driver.Value, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
		},
		"of a driver that does not return": func(t *testing.T, hang chan struct{}) *Roster {
			r, _ := onAway(t, &away{hang: hang})
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang := make(chan struct{})
				defer close(hang)
				r := roster(t, hang)
				r.OnElected(t.Context(), hooks.Elected{Origin: one, Token: 7, At: time.Now()})
				time.Sleep(3 * time.Second)
				began := time.Now()
				if err := r.Close(t.Context()); !errors.Is(err, ErrClosed) || time.Since(began) != maxTimeout {
					t.Errorf("Close returned %v after %v", err, time.Since(began))
				}
				if s := r.Stats(); s.Failures != 2 {
					t.Errorf("got %+v, want that both writes failed", s)
				}
			})
		})
	}
}

func TestCloseDoesNotWaitForACleanUpThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &away{hang: make(chan struct{})}
		r, _ := onAway(t, a, WithPublishInterval(time.Hour))
		var waits atomic.Bool
		waits.Store(true)
		go func() {
			r.cleanUp()
			waits.Store(false)
		}()
		synctest.Wait()
		if !waits.Load() || len(a.tries()) != 1 {
			t.Error("it does not hang")
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if synctest.Wait(); waits.Load() {
			t.Error("the clean-up is waited for")
		}
		close(a.hang)
	})
}

// As if the commit of a term waited for a synchronous standby that is away.
func TestCandidatesArePublishedWhileTermsCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var published atomic.Int64
		r := on(t, func(ctx context.Context, statement string) ([][]driver.Value, error) {
			if statement == "Publish" {
				published.Add(1)
				return nil, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		r.OnElected(t.Context(), hooks.Elected{Origin: one, Token: 7, At: time.Now()})
		for range 10 {
			time.Sleep(silentAfter * defaultInterval)
			if published.Swap(0) == 0 {
				t.Error("it is shown as silent")
			}
		}
		if s := r.Stats(); s.Waiting != 1 || !errors.Is(s.Err, context.DeadlineExceeded) {
			t.Errorf("got %+v, want that the term waits", s)
		}
		_ = r.Close(t.Context())
	})
}

// Each has its term recorded, and is published again at once with other metadata.
func TestTheCandidatesOfAProcessArePublishedFiveHundredInAStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var published atomic.Int64
		r := on(t, func(_ context.Context, statement string) ([][]driver.Value, error) {
			if statement == "Publish" {
				published.Add(1)
			}
			return nil, nil
		})
		for key := range int64(maxRows + 100) {
			r.OnElected(t.Context(), hooks.Elected{Origin: hooks.Origin{Election: "orders", Key: key, CandidateID: "one"}, Token: 7, At: time.Now()})
		}
		time.Sleep(time.Second)
		if s := r.Stats(); s.Waiting != 0 || s.Dropped != 0 {
			t.Errorf("got %+v, want that all terms are written", s)
		}
		published.Store(0)
		check(t, r.SetMetadata(map[string]string{"epoch": "2"}))
		synctest.Wait()
		if n := published.Load(); n != 2 || maxRows != 500 {
			t.Errorf("%d candidates were published by %d statements, want 2", maxRows+100, n)
		}
		check(t, r.Close(t.Context()))
	})
}

// So none waits for longer than a second.
func TestChangesOfHealthAreWrittenOncePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written []time.Time
		var mu sync.Mutex
		r := on(t, func(_ context.Context, statement string) ([][]driver.Value, error) {
			mu.Lock()
			defer mu.Unlock()
			if statement == "Publish" {
				written = append(written, time.Now())
			}
			return nil, nil
		})
		server := electortest.NewServer()
		defer server.Close()
		pool := server.Open()
		defer pool.Close()
		e, err := elector.New(pool, "orders")
		check(t, err)
		check(t, r.Add(e))
		term, err := e.Campaign(t.Context())
		check(t, err)
		time.Sleep(2 * time.Second)
		e.ReportHealth(elector.HealthReport{Score: 0.9})
		time.Sleep(130 * time.Millisecond)
		mu.Lock()
		written = nil
		mu.Unlock()
		check(t, r.SetMetadata(map[string]string{"a": "b"})) // which writes it between two looks
		for i := range 100 {                                 // ten a second
			e.ReportHealth(elector.HealthReport{Score: 0.5 + float64(i)/1000})
			time.Sleep(100 * time.Millisecond)
		}
		mu.Lock()
		if n := len(written); n < 9 || n > 11 {
			t.Errorf("%d writes in ten seconds", n)
		}
		for i := range written[1:] {
			if between := written[i+1].Sub(written[i]); between < time.Second || between > 1010*time.Millisecond {
				t.Errorf("%v between two writes", between)
			}
		}
		mu.Unlock()
		check(t, term.Resign(t.Context()))
		check(t, r.Close(t.Context()))
	})
}

func TestAFailedWriteIsRetriedOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &away{}
		r, errs := onAway(t, a, WithPublishInterval(10*time.Second))
		for range 60 { // an event each second causes no further tries
			r.OnElected(t.Context(), hooks.Elected{Origin: one, Token: time.Now().UnixNano(), At: time.Now()})
			time.Sleep(time.Second)
		}
		synctest.Wait()
		tries := a.tries()
		if len(tries) < 6 || len(tries) > 8 { // at once, and then each 9 to 11 s
			t.Errorf("%d tries in a minute", len(tries))
		}
		if s := r.Stats(); int(s.Failures) != len(tries) || len(errs()) != 1 || !errors.Is(s.Err, errAway) {
			t.Errorf("%d tries, OnError was called %d times, and %+v", len(tries), len(errs()), s)
		}
		_ = r.Close(t.Context())
	})
}

func TestARosterWithoutEventsStartsNothing(t *testing.T) {
	a := &away{}
	r, _ := onAway(t, a)
	if err := r.SetMetadata(map[string]string{"a": "b"}); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := r.Close(t.Context()); !errors.Is(err, ErrNoElector) {
			t.Error(err)
		}
	}
	r.OnElected(t.Context(), hooks.Elected{Origin: one, Token: 7}) // too late
	if len(a.tries()) > 0 || r.Stats() != (Stats{}) {
		t.Errorf("%d tries, %+v", len(a.tries()), r.Stats())
	}
}

func TestAnOnErrorThatDoesNotReturnEndsNoWriting(t *testing.T) {
	for name, end := range map[string]func(){"a panic": func() { panic("no") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := onAway(t, &away{})
				r.onError = func(error) { end() }
				r.OnElected(t.Context(), hooks.Elected{Origin: one, Token: 7, At: time.Now()})
				time.Sleep(time.Minute)
				if s := r.Stats(); s.Failures < 3 {
					t.Errorf("it no longer tries: %+v", s)
				}
				_ = r.Close(t.Context())
			})
		})
	}
}

// refusal is what a driver returns if the server refuses a row.
type refusal string

func (r refusal) Error() string    { return string(r) }
func (r refusal) SQLState() string { return string(r) }

func TestOnlyTheRowsThatTheServerRefusesAreDropped(t *testing.T) {
	for _, state := range []refusal{"22021", "22P05", "22008", "23514", "21000"} {
		var written, dropped []string
		err := inChunks([]string{"a", "bad", "b", "é", "c", `\u2028`, "bad"}, func(text string) error {
			var rows []string
			if strings.Contains(text, "bad") || strings.Contains(text, "é") {
				return state
			}
			err := json.Unmarshal([]byte(text), &rows)
			written = append(written, rows...)
			return err
		}, func(row string, _ error) { dropped = append(dropped, row) })
		if err != nil || strings.Join(dropped, " ") != "bad bad" || strings.Join(written, " ") != `a b ? c \u2028` {
			t.Errorf("%s: written are %q, dropped %q, %v", state, written, dropped, err)
		}
	}
	for _, other := range []error{errAway, refusal("42501"), refusal("25006")} {
		err := inChunks([]int{1, 2}, func(string) error { return other }, func(int, error) { t.Error("a row was dropped after", other) })
		if !errors.Is(err, other) {
			t.Errorf("got %v, want %v", err, other)
		}
	}
}

func TestACandidateThatIsRefusedIsReportedOnce(t *testing.T) {
	l := newLedger(grace)
	l.saw(one, now)
	for range 3 {
		l.refuseCandidate(keyOf(one), errAway)
	}
	l.refuseCandidate(candidateKey{Key: 2}, errAway) // it has left
	if len(l.refused) != 1 || !errors.Is(l.refused[0], ErrDropped) || !errors.Is(l.refused[0], errAway) {
		t.Errorf("reported are %v", l.refused)
	}
}

func TestABadArgumentIsAnErrorThatNamesIt(t *testing.T) {
	pool, _, err := sqlmock.New()
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for want, opt := range map[string]Option{
		`WithSchema("")`:         WithSchema(""),
		`it is 64`:               WithSchema(strings.Repeat("x", 64)),
		`WithSchema("a\x00b")`:   WithSchema("a\x00b"),
		`WithSchema("\xff")`:     WithSchema("\xff"),
		`WithSchema("pg_toast")`: WithSchema("pg_toast"),
		"WithPublishInterval(999ms): want 1s <= interval <= 1h0m0s": WithPublishInterval(999 * time.Millisecond),
		"WithPublishInterval(1h0m1s)":                               WithPublishInterval(time.Hour + time.Second),
		"WithPublishInterval(1.0005s): want whole milliseconds":     WithPublishInterval(time.Second + 500*time.Microsecond),
		"got 101":              WithVersion(strings.Repeat("v", 101)),
		`WithVersion("\xff")`:  WithVersion("\xff"),
		`metadata "a": "\x00"`: WithMetadata(map[string]string{"a": "\x00"}),
		`metadata "\xff"`:      WithMetadata(map[string]string{"\xff": "a"}),
		"at most 8192 bytes":   WithMetadata(map[string]string{"a": strings.Repeat("x", 8192)}),
		"WithRetention(59m0s, 1): want 1h0m0s <= age": WithRetention(59*time.Minute, 1),
		"<= age <= 87600h0m0s":                        WithRetention(87601*time.Hour, 1),
		"want 1 <= terms <= 1000000":                  WithRetention(time.Hour, 0),
		"WithRetention(1h0m0s, 1000001)":              WithRetention(time.Hour, 1_000_001),
		"WithOnError":                                 WithOnError(nil),
		"WithForgetAfter(59.999999999s)":              WithForgetAfter(time.Minute - 1),
		"WithForgetAfter(720h0m0.000000001s)":         WithForgetAfter(maxForget + 1),
		"WithOnRecovered":                             WithOnRecovered(nil),
		"option 1 is nil":                             nil,
	} {
		if _, err := New(pool, opt); !errors.Is(err, elector.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one that wraps elector.ErrConfig and has %q", err, want)
		} else if strings.Contains(err.Error(), "<nil>") {
			t.Errorf("%v repeats an error that is none", err)
		}
	}
	if _, err := New(nil); !errors.Is(err, elector.ErrConfig) {
		t.Errorf("a nil pool: got error %v", err)
	}
	r, err := New(pool, WithSchema(strings.Repeat("x", 63)), WithMetadata(nil), WithPublishInterval(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Add(nil); !errors.Is(err, elector.ErrConfig) {
		t.Errorf("Add of a nil elector: got error %v", err)
	}
	if err := r.SetMetadata(map[string]string{"a": "\x00"}); !errors.Is(err, elector.ErrConfig) {
		t.Errorf("SetMetadata: got error %v", err)
	}
}

func TestTheDefaultsAreTheDocumented(t *testing.T) {
	c, err := configure(nil)
	if err != nil || c.schema != "pgelector" || c.interval != 15*time.Second || string(c.metadata) != "{}" || c.age != 30*24*time.Hour || c.keep != 10_000 {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// One that only reads is closed without an error.
func TestCloseSaysThatNoElectorWasAdded(t *testing.T) {
	pool, _, err := sqlmock.New()
	check(t, err)
	defer pool.Close()
	for _, c := range []struct {
		opts []Option
		want error
	}{{nil, nil}, {[]Option{WithMetadata(map[string]string{"address": "10.0.0.7"})}, ErrNoElector}} {
		r, err := New(pool, c.opts...)
		check(t, err)
		if err := r.Close(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("closed: %v, want %v", err, c.want)
		}
	}
}

// PostgreSQL has one SQLSTATE for both.
func TestARefusalByRowLevelSecurityIsNotCalledAMissingGrantAlone(t *testing.T) {
	if text := ErrNoPrivilege.Error(); !strings.Contains(text, "GRANT") || !strings.Contains(text, "row-level security") || !strings.Contains(text, "POLICY") {
		t.Errorf("the error says %q", text)
	}
}

// refusing is a connector to a server that refuses the login.
type refusing struct{ state string }

func (r refusing) Error() string                                { return "permission denied for database" }
func (r refusing) SQLState() string                             { return r.state }
func (r refusing) Connect(context.Context) (driver.Conn, error) { return nil, r }
func (r refusing) Driver() driver.Driver                        { return nil }

// A role that may not connect, say, lacks no privilege on the tables.
func TestARefusedLoginSaysNothingOfTheTables(t *testing.T) {
	for _, state := range []string{"42501", "3F000"} {
		pool := sql.OpenDB(refusing{state})
		defer pool.Close()
		r, err := New(pool)
		if err != nil {
			t.Fatal(err)
		}
		err = r.sendOnOne(t.Context(), batch{}, nil)
		if errors.Is(err, ErrNoPrivilege) || errors.Is(err, ErrNotMigrated) || !errors.Is(err, refusing{state}) {
			t.Errorf("%v", err)
		}
	}
}

func TestAPriorityIsPublishedAsMetadataUnlessTheProgramHasThatKey(t *testing.T) {
	n := int32(-12)
	for metadata, want := range map[string]string{
		`{}`:                 `{"priority":"-12"}`,
		`{"zone":"a"}`:       `{"priority":"-12","zone":"a"}`,
		`{"priority":"low"}`: `{"priority":"low"}`,
	} {
		rows := candidateRows([]candidate{{priority: &n}, {}}, "", json.RawMessage(metadata))
		if got, other := string(rows[0].Metadata), string(rows[1].Metadata); got != want || other != metadata {
			t.Errorf("of %s: got %s and %s", metadata, got, other)
		}
	}
	full, err := encodeMetadata(map[string]string{"a": strings.Repeat("x", maxMetadata-10)})
	if err != nil {
		t.Fatal(err)
	}
	if rows := candidateRows([]candidate{{priority: &n}}, "", full); string(rows[0].Metadata) != string(full) {
		t.Error("metadata without room has changed")
	}
}

func TestTheRosterKnowsThePriorityOfAnElectorThatIsAdded(t *testing.T) {
	pool, _, err := sqlmock.New()
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	r, err := New(pool)
	if err != nil {
		t.Fatal(err)
	}
	e, err := elector.New(pool, "orders", elector.WithPriority(-12))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Add(e); err != nil {
		t.Fatal(err)
	}
	r.ledger.join(hooks.Origin{Election: "orders", Key: e.Key(), CandidateID: e.CandidateID()})
	if all := r.ledger.batch(true).publish; len(all) != 1 || all[0].priority == nil || *all[0].priority != -12 {
		t.Errorf("got %+v", all)
	}
	if r.Remove(e); len(r.ledger.prefers) > 0 {
		t.Errorf("left %v", r.ledger.prefers)
	}
	_ = r.Close(t.Context())
}
