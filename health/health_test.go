package health_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
	"github.com/pgelector/pgelector/health"
	"github.com/pgelector/pgelector/hooks"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// newMock returns a mock database.
func newMock(t *testing.T) (*sql.DB, sqlmock.Sqlmock) {
	t.Helper()
	pool, mock, err := sqlmock.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mock.ExpectationsWereMet(); err != nil {
			t.Error(err)
		}
		mock.ExpectClose()
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return pool, mock
}

// watch returns a Monitor of followers web-1 in the elections.
func watch(t *testing.T, pool *sql.DB, elections []string, opts ...health.Option) *health.Monitor {
	t.Helper()
	patient := []health.Option{health.WithTimeout(time.Minute), health.WithCache(time.Minute)}
	m, err := health.New(pool, append(patient, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, election := range elections {
		e, err := elector.New(pool, election, elector.WithCandidateID("web-1"), elector.WithHooks(m))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

var orders = []string{"orders"}

// expectLeaders expects one query, and answers with pairs of election and leader.
func expectLeaders(mock sqlmock.Sqlmock, leaders ...string) *sqlmock.ExpectedQuery {
	rows := sqlmock.NewRows([]string{"key", "pid", "application_name", "overdue_millis"})
	for i := 0; i < len(leaders); i += 2 {
		rows.AddRow(elector.KeyFromName(leaders[i]), 4711, leaders[i+1], 0)
	}
	expectPing(mock, false)
	defer mock.ExpectRollback()
	return mock.ExpectQuery("-- name: Leaders ").WillReturnRows(rows)
}

func expectPing(mock sqlmock.Sqlmock, inRecovery bool) {
	mock.ExpectBegin()
	mock.ExpectQuery("-- name: Ping ").WillReturnRows(sqlmock.NewRows([]string{"pid", "in_recovery", "rung"}).AddRow(1, inRecovery, false))
}

// It knows none of the primary's locks.
func TestAStandbyIsUnhealthy(t *testing.T) {
	pool, mock := newMock(t)
	m := watch(t, pool, []string{"orders"})
	expectPing(mock, true)
	mock.ExpectRollback()
	wants(t, m, 503, `"status":"unhealthy"`, "hot standby")
}

func get(h http.Handler) (code int, body string) {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
	return answer.Code, answer.Body.String()
}

// wants fails the test unless the handler answers with the code and the texts.
func wants(t *testing.T, h http.Handler, code int, texts ...string) {
	t.Helper()
	got, body := get(h)
	if got != code {
		t.Errorf("got %d, want %d: %s", got, code, body)
	}
	for _, text := range texts {
		if !strings.Contains(body, text) {
			t.Errorf("want %s in %s", text, body)
		}
	}
}

func TestAFollowerIsHealthyIfAnotherLeads(t *testing.T) {
	pool, mock := newMock(t)
	m := watch(t, pool, orders)
	expectLeaders(mock, "orders", "web-2")
	wants(t, m, 200, `"status":"healthy"`, `"leading":false`, `"leader":"web-2"`, `"candidate":"web-1"`, `"asked":"`)
	wants(t, m.Readiness(), 200, `"status":"healthy"`)
}

func TestAnElectionThatNobodyLeadsIsDegradedAndReady(t *testing.T) {
	for name, leaders := range map[string][]string{"the lock is free": nil, "the lock is held for our last term": {"orders", "web-1"}} {
		t.Run(name, func(t *testing.T) {
			pool, mock := newMock(t)
			m := watch(t, pool, orders)
			expectLeaders(mock, leaders...)
			wants(t, m, 200, `"status":"degraded"`, `"leader":""`, `"why":"nobody leads`)
			wants(t, m.Readiness(), 200, `"status":"degraded"`)
		})
	}
}

func TestTheCodeOfDegradedCanBeSetExceptForReadiness(t *testing.T) {
	pool, mock := newMock(t)
	m := watch(t, pool, orders, health.WithDegradedCode(503))
	expectLeaders(mock)
	wants(t, m, 503, `"status":"degraded"`)
	wants(t, m.Readiness(), 200)
}

func TestAnElectionIsUnhealthyIfTheServerFails(t *testing.T) {
	pool, mock := newMock(t)
	m := watch(t, pool, orders)
	mock.ExpectBegin().WillReturnError(errors.New("connection refused"))
	wants(t, m, 503, `"status":"unhealthy"`, "the leader is unknown: connection refused")
	wants(t, m.Readiness(), 503)
	wants(t, m.Liveness(), 200)
}

func TestTheReportHasTheStatusOfTheWorstElection(t *testing.T) {
	pool, mock := newMock(t)
	m := watch(t, pool, []string{"a", "b", "c"})
	expectLeaders(mock, "a", "web-2", "c", "web-3")
	wants(t, m, 200, `{"status":"degraded","elections":[{"election":"a","candidate":"web-1","status":"healthy"`, `"leader":"web-3"`)
	m.OnError(ctx, hooks.Failure{Origin: who("c"), Op: hooks.OpWork, Err: elector.ErrOverrun})
	wants(t, m, 503, `{"status":"unhealthy"`)
}

func TestAMonitorWithoutElectionsIsHealthyAndSendsNothing(t *testing.T) {
	pool, _ := newMock(t)
	m := watch(t, pool, nil)
	if err := m.Add(); err != nil { // it has none yet
		t.Fatal(err)
	}
	wants(t, m, 200, `{"status":"healthy","elections":[]}`)
}

// It would answer 200 for ever.
func TestAMonitorToWhichNothingWasAddedIsNotReady(t *testing.T) {
	pool, _ := newMock(t)
	m, err := health.New(pool)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := elector.New(pool, "orders", elector.WithHooks(m)); err != nil { // alone it says nothing of the election
		t.Fatal(err)
	}
	const forgotten = `{"status":"unhealthy","why":"no elector was added: call Monitor.Add","elections":[]}`
	wants(t, m, 503, forgotten)
	wants(t, m.Readiness(), 503, forgotten)
	wants(t, m.Liveness(), 200) // a restart would not help
}

func who(election string) hooks.Origin {
	return hooks.Origin{Election: election, Key: elector.KeyFromName(election), CandidateID: "web-1"}
}

func TestLivenessFailsUntilWorkThatOverranHasReturned(t *testing.T) {
	pool, mock := newMock(t)
	m := watch(t, pool, []string{"orders", "reports"})
	wants(t, m.Liveness(), 200, `{"status":"healthy","elections":[]}`)
	orders, shard := make(chan struct{}), make(chan struct{})
	m.OnError(ctx, hooks.Failure{Origin: who("orders"), Op: hooks.OpWork, Err: fmt.Errorf("%w: for 2s", elector.ErrOverrun), Returned: orders})
	wants(t, m.Liveness(), 503, `"status":"unhealthy"`, `"election":"orders"`, elector.ErrOverrun.Error())
	expectLeaders(mock, "orders", "web-2", "reports", "web-2")
	wants(t, m.Readiness(), 503, `"leader":"web-2"`)
	close(orders)
	wants(t, m.Liveness(), 200)
	wants(t, m.Readiness(), 200)
	m.OnError(ctx, hooks.Failure{Origin: who("group/7"), Op: hooks.OpWork, Err: elector.ErrOverrun, Returned: shard}) // a shard is not added
	wants(t, m.Liveness(), 503, `"election":"group/7"`)
	close(shard)
	wants(t, m.Liveness(), 200)
}

// The Monitor is told by another hook's goroutine, and a panic of a hook is none of its business.
func TestLivenessFailsUntilAHookReturns(t *testing.T) {
	pool, mock := newMock(t)
	m := watch(t, pool, orders)
	returned, worked := make(chan struct{}), make(chan struct{})
	m.OnError(ctx, hooks.Failure{Origin: who("orders"), Op: hooks.OpHook, Err: errors.New("panicked")})
	wants(t, m.Liveness(), 200)
	m.OnError(ctx, hooks.Failure{Origin: who("orders"), Op: hooks.OpHook, Err: errors.New("OnDemoted has not returned"), Returned: returned})
	wants(t, m.Liveness(), 503, "OnDemoted has not returned")
	expectLeaders(mock, "orders", "web-2")
	wants(t, m.Readiness(), 503, "OnDemoted has not returned")
	m.OnError(ctx, hooks.Failure{Origin: who("orders"), Op: hooks.OpWork, Err: elector.ErrOverrun, Returned: worked})
	close(worked)
	wants(t, m.Liveness(), 503, "OnDemoted has not returned")
	close(returned)
	wants(t, m.Liveness(), 200)
	wants(t, m.Readiness(), 200)
}

// losing returns a Monitor, and an elector with a hook before it that calls campaign, on a server
// in memory. lose ends the session of its term after a second.
func losing(t *testing.T, campaign func()) (m *health.Monitor, e *elector.Elector, lose func()) {
	t.Helper()
	server := electortest.NewServer()
	t.Cleanup(server.Close)
	pool := server.Open()
	t.Cleanup(func() { _ = pool.Close() })
	m, err := health.New(pool)
	if err != nil {
		t.Fatal(err)
	}
	e, err = elector.New(pool, "orders", elector.WithHooks(hooks.Funcs{Campaign: func(context.Context, hooks.Campaign) { campaign() }}, m))
	if err != nil {
		t.Fatal(err)
	}
	return m, e, func() {
		time.Sleep(time.Second)
		leader, err := e.Leader(ctx)
		if err != nil || !server.Terminate(leader.PID) {
			t.Error("no session has ended:", err)
		}
	}
}

// The hooks of a term whose session ends before OnElected could be called do not learn of its end.
func TestLivenessRecoversFromWorkOfATermThatNoHookWasToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e, lose := losing(t, sync.OnceFunc(func() { time.Sleep(10 * time.Second) }))
		ctx, stop := context.WithCancel(ctx)
		done := make(chan error)
		hangs := true
		go func() {
			done <- e.Run(ctx, func(ctx context.Context, term *elector.Term) error {
				<-ctx.Done()
				if hangs {
					hangs = false
					time.Sleep(20 * time.Second)
				}
				return nil
			})
		}()
		lose()
		time.Sleep(14 * time.Second)
		wants(t, m.Liveness(), 503, elector.ErrOverrun.Error())
		time.Sleep(time.Minute)
		wants(t, m.Liveness(), 200)
		stop()
		<-done
	})
}

// As above, but no campaign of the same candidate follows.
func TestLivenessRecoversFromWorkOfTryRunWhoseTermNoHookWasToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e, lose := losing(t, func() { time.Sleep(10 * time.Second) })
		if err := m.Add(e); err != nil {
			t.Fatal(err)
		}
		returned := make(chan struct{})
		go func() {
			lose()
			time.Sleep(14 * time.Second)
			wants(t, m.Liveness(), 503, elector.ErrOverrun.Error())
			wants(t, m.Readiness(), 503, elector.ErrOverrun.Error())
			close(returned)
		}()
		elected, err := e.TryRun(ctx, func(ctx context.Context, term *elector.Term) error {
			<-returned
			return nil
		})
		if !elected || !errors.Is(err, elector.ErrSessionLost) {
			t.Error(elected, err)
		}
		wants(t, m.Liveness(), 200)
		wants(t, m.Readiness(), 200)
	})
}

func TestWorkThatFailedAfterItsTermDoesNotFailLiveness(t *testing.T) {
	pool, _ := newMock(t)
	m := watch(t, pool, orders)
	m.OnError(ctx, hooks.Failure{Origin: who("orders"), Op: hooks.OpLead, Err: elector.ErrLeadFailed})
	wants(t, m.Liveness(), 200)
}

func TestACandidateWhoseCampaignFailedIsUnhealthyUntilItCampaignsAgain(t *testing.T) {
	pool, mock := newMock(t)
	m := watch(t, pool, orders)
	expectLeaders(mock, "orders", "web-2")
	refuse := func(permanent bool) {
		m.OnError(ctx, hooks.Failure{Origin: who("orders"), Op: hooks.OpCampaign, Err: elector.ErrUnsupportedServer, Permanent: permanent})
		m.OnCampaign(ctx, hooks.Campaign{Origin: who("orders"), Outcome: hooks.Failed})
	}
	refuse(true)
	wants(t, m, 503, elector.ErrUnsupportedServer.Error())
	wants(t, m.Liveness(), 200)
	refuse(false)
	wants(t, m, 200)
	refuse(true)
	m.OnCampaign(ctx, hooks.Campaign{Origin: who("orders"), Outcome: hooks.Busy})
	wants(t, m, 200)
	refuse(true)
	m.OnElected(ctx, hooks.Elected{Origin: who("orders")})
	wants(t, m, 200)
}

func TestAnElectorThatIsRemovedIsForgotten(t *testing.T) {
	pool, mock := newMock(t)
	m := watch(t, pool, []string{"reports"})
	e, err := elector.New(pool, "orders", elector.WithCandidateID("web-1"), elector.WithHooks(m))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Add(e); err != nil {
		t.Fatal(err)
	}
	returned := make(chan struct{})
	m.OnError(ctx, hooks.Failure{Origin: who("orders"), Op: hooks.OpWork, Err: elector.ErrOverrun, Returned: returned})
	m.OnError(ctx, hooks.Failure{Origin: who("orders"), Op: hooks.OpCampaign, Err: elector.ErrUnsupportedServer, Permanent: true})
	m.Remove(e)
	m.Remove(e, nil)
	wants(t, m.Liveness(), 503) // the work runs on
	close(returned)
	wants(t, m.Liveness(), 200)
	expectLeaders(mock, "reports", "web-2")
	wants(t, m, 200, `{"status":"healthy","elections":[{"election":"reports"`)
	if err := m.Add(e); err != nil {
		t.Fatal(err)
	}
	expectLeaders(mock, "reports", "web-2", "orders", "web-2")
	wants(t, m, 200, `"election":"orders","candidate":"web-1","status":"healthy"`)
}

func TestAnInvalidArgumentIsAnErrorAtOnce(t *testing.T) {
	pool, _ := newMock(t)
	for name, make := range map[string]func() error{
		"no pool":             func() error { _, err := health.New(nil); return err },
		"timeout too short":   func() error { _, err := health.New(pool, health.WithTimeout(time.Millisecond)); return err },
		"timeout too long":    func() error { _, err := health.New(pool, health.WithTimeout(time.Hour)); return err },
		"a cache before now":  func() error { _, err := health.New(pool, health.WithCache(-1)); return err },
		"a cache too long":    func() error { _, err := health.New(pool, health.WithCache(time.Hour)); return err },
		"a code that is none": func() error { _, err := health.New(pool, health.WithDegradedCode(99)); return err },
		"no option":           func() error { _, err := health.New(pool, nil); return err },
		"no elector":          func() error { return watch(t, pool, nil).Add(nil) },
	} {
		if err := make(); !errors.Is(err, elector.ErrConfig) {
			t.Errorf("%s: got %v, want ErrConfig", name, err)
		}
	}
}

func TestAnswersAreUsedForTheCachesTimeAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, mock := newMock(t)
		m := watch(t, pool, orders, health.WithCache(5*time.Second))
		expectLeaders(mock, "orders", "web-2")
		wants(t, m, 200, "web-2")
		time.Sleep(5*time.Second - 1)
		wants(t, m, 200, "web-2")
		expectLeaders(mock, "orders", "web-3")
		time.Sleep(time.Nanosecond)
		wants(t, m, 200, "web-3")
	})
}

func TestAFailureIsReusedForASecondOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		pool := server.Open()
		defer pool.Close()
		m := watch(t, pool, orders, health.WithCache(time.Minute))
		server.Stop()
		if r := m.Check(t.Context()); r.Status != health.Unhealthy || r.Elections[0].Asked != nil {
			t.Errorf("while the server is away: %+v", r)
		}
		server.Start()
		time.Sleep(time.Second)
		if r := m.Check(t.Context()); r.Status == health.Unhealthy || r.Elections[0].Asked == nil {
			t.Errorf("when it is back: %+v", r)
		}
	})
}

func TestAnAddedElectionIsQueried(t *testing.T) {
	pool, mock := newMock(t)
	m := watch(t, pool, orders)
	expectLeaders(mock, "orders", "web-2")
	wants(t, m, 200)
	e, err := elector.New(pool, "reports")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Add(e); err != nil {
		t.Fatal(err)
	}
	expectLeaders(mock, "orders", "web-2", "reports", "web-4")
	wants(t, m, 200, "web-4")
}

func TestTheEndpointsReportTheCheckOfTheElector(t *testing.T) {
	server := electortest.NewServer()
	defer server.Close()
	pool := server.Open()
	defer pool.Close()
	score := 0.75
	m, err := health.New(pool, health.WithCache(0))
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan hooks.Failure, 10)
	hook := hooks.Funcs{Error: func(_ context.Context, f hooks.Failure) { failed <- f }}
	e, err := elector.New(pool, "orders", elector.WithHooks(m, hook), elector.WithHealth(func(context.Context) elector.HealthReport {
		if score < 0 {
			panic("disk full")
		}
		return elector.HealthReport{Score: score}
	}, elector.HealthPolicy{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Add(e); err != nil {
		t.Fatal(err)
	}
	if _, body := get(m); strings.Contains(body, "score") {
		t.Errorf("a score before the first check: %s", body)
	}
	term, err := e.Campaign(ctx)
	if err != nil {
		t.Fatal(err)
	}
	wants(t, m, 200, `"leading":true`, `"score":0.75`)
	if err := term.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	for bad, text := range map[float64]string{0.25: `"score":0.25,"why":"this candidate is unhealthy"`, -1: `this candidate is unhealthy: the check panicked: disk full","asked"`} {
		score = bad
		if err := e.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if f := <-failed; !errors.Is(f.Err, elector.ErrUnhealthy) {
			t.Errorf("failed: %v", f.Err)
		}
		wants(t, m, 503, text)
		wants(t, m.Readiness(), 503, text)
		wants(t, m.Liveness(), 200)
		if err := e.Stop(ctx); err != nil {
			t.Error(err)
		}
		wants(t, m.Readiness(), 200) // it does not campaign
		if _, _, err := e.TryCampaign(ctx); !errors.Is(err, elector.ErrUnhealthy) {
			t.Errorf("TryCampaign returned %v", err)
		}
		<-failed
		wants(t, m.Readiness(), 200)
	}
}

func TestATryCampaignThatIsRefusedDoesNotGiveUp(t *testing.T) {
	server := electortest.NewServer()
	defer server.Close()
	standby := server.NewStandby(0)
	defer standby.Close()
	pool, refused := server.Open(), standby.Open()
	defer pool.Close()
	defer refused.Close()
	m, err := health.New(pool)
	if err != nil {
		t.Fatal(err)
	}
	e, err := elector.New(refused, "orders", elector.WithReadOnlyTimeout(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Add(e); err != nil {
		t.Fatal(err)
	}
	if _, _, err := e.TryCampaign(ctx); !errors.Is(err, elector.ErrServerReadOnly) {
		t.Errorf("TryCampaign returned %v", err)
	}
	wants(t, m.Readiness(), 200)
	if _, err := e.Campaign(ctx); !errors.Is(err, elector.ErrServerReadOnly) {
		t.Errorf("Campaign returned %v", err)
	}
	wants(t, m.Readiness(), 503, "gave up")
}

// No hook is given to the elector.
func TestAddAloneReportsWorkThatOverruns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		pool := server.Open()
		defer pool.Close()
		m, err := health.New(pool)
		if err != nil {
			t.Fatal(err)
		}
		e, err := elector.New(pool, "orders")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := m.Add(e, e); err != nil {
				t.Fatal(err)
			}
		}
		overruns := func(live int) {
			t.Helper()
			ctx, stop := context.WithTimeout(ctx, time.Second)
			defer stop()
			err := e.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
				<-ctx.Done()
				time.Sleep(time.Minute)
				wants(t, m.Liveness(), live, `"elections":[`)
				if code, body := get(m); strings.Count(body, `"candidate"`) > 1 || live == 503 && code != 503 {
					t.Errorf("got %d %s", code, body)
				}
				return nil
			})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			wants(t, m.Liveness(), 200)
		}
		overruns(503)
		m.Remove(e)
		overruns(200)
		if err := m.Add(e); err != nil {
			t.Fatal(err)
		}
		overruns(503)
	})
}

func TestManyProbesAtOnceSendOneStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, mock := newMock(t)
		m := watch(t, pool, []string{"a", "b", "c"})
		expectLeaders(mock, "a", "web-2", "b", "web-2", "c", "web-2").WillDelayFor(100 * time.Millisecond)
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() { wants(t, m, 200, `"status":"healthy"`) })
		}
		all.Wait()
	})
}

func TestACancelledProbeDoesNotAffectOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, mock := newMock(t)
		m := watch(t, pool, orders)
		expectLeaders(mock, "orders", "web-2").WillDelayFor(100 * time.Millisecond)
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		answer := httptest.NewRecorder()
		m.ServeHTTP(answer, httptest.NewRequest("GET", "/", nil).WithContext(short))
		if answer.Code != 503 {
			t.Errorf("got %d for a probe that went away", answer.Code)
		}
		wants(t, m, 200, "web-2")
	})
}

func TestAnAnswerForReplacedElectorsIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, mock := newMock(t)
		m := watch(t, pool, nil)
		candidate := func(election string) *elector.Elector {
			e, err := elector.New(pool, election, elector.WithCandidateID("web-1"))
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Add(e); err != nil {
				t.Fatal(err)
			}
			return e
		}
		old := candidate("old")
		expectLeaders(mock, "old", "web-2").WillDelayFor(100 * time.Millisecond)
		expectLeaders(mock, "new", "web-3")
		var asked sync.WaitGroup
		asked.Go(func() { get(m) })
		time.Sleep(50 * time.Millisecond)
		m.Remove(old)
		candidate("new") // the number is unchanged
		time.Sleep(100 * time.Millisecond)
		wants(t, m, 200, `"leader":"web-3"`)
		asked.Wait()
	})
}

// stuck is a driver whose calls ignore their contexts, and return only after letGo.
type stuck struct {
	letGo chan struct{}
	calls atomic.Int32
}

func (s *stuck) Connect(context.Context) (driver.Conn, error) {
	s.calls.Add(1)
	<-s.letGo
	return nil, driver.ErrBadConn
}
func (s *stuck) Driver() driver.Driver { return nil }

func TestProbesDoNotWaitForAStuckDriverAndCallItRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := &stuck{letGo: make(chan struct{})}
		pool := sql.OpenDB(dead)
		defer pool.Close()
		m := watch(t, pool, orders, health.WithTimeout(2*time.Second), health.WithCache(0))
		for i := range 10 {
			start := time.Now()
			wants(t, m, 503, "the leader is unknown")
			if waited := time.Since(start); waited > 2*time.Second {
				t.Errorf("probe %d waited %v", i, waited)
			}
		}
		if n := dead.calls.Load(); n != 3 {
			t.Errorf("%d calls are stuck in the driver, want 3", n)
		}
		wants(t, m, 503, "calls of the driver have not returned")
		close(dead.letGo)
		synctest.Wait()
		wants(t, m, 503, "bad connection")
	})
}
