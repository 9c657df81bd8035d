package elector_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/DATA-DOG/go-sqlmock"
	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

func newPool(t testing.TB) *sql.DB {
	pool, _, err := sqlmock.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

func newSession(t *testing.T) *elector.Session {
	session, err := elector.NewSession(newPool(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := session.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return session
}

func healthy(p elector.HealthPolicy) elector.Option {
	return elector.WithHealth(func(context.Context) elector.HealthReport { return elector.HealthReport{Score: 1} }, p)
}

func TestABadOptionIsRefusedByNameAndInequality(t *testing.T) {
	type calledNothing struct{}
	for _, c := range []struct {
		opt  elector.Option
		want string
	}{
		{nil, "option 1 is nil"},
		{elector.WithCandidateID(""), `WithCandidateID(""): want 1 <= length <= 63 bytes, but it is 0`},
		{elector.WithCandidateID(strings.Repeat("x", 64)), `want 1 <= length <= 63 bytes, but it is 64`},
		{elector.WithCandidateID("wéb"), `WithCandidateID("wéb"): want printable ASCII, but byte 1 is 0xc3`},
		{elector.WithCandidateID("web\n1"), `want printable ASCII, but byte 3 is 0xa`},
		{elector.WithCandidateID("web\x00"), `but byte 3 is 0x0`},
		{elector.WithCandidateID("web-1 "), `trim "web-1 "`},
		{elector.WithLease(10*time.Second + 500*time.Microsecond), `WithLease(10.0005s): want whole milliseconds`},
		{elector.WithCandidateID("web\x7f"), `but byte 3 is 0x7f`},
		{elector.WithRetryInterval(-time.Second), "WithRetryInterval(-1s): want 10ms <= interval <= 24h0m0s"},
		{elector.WithRetryInterval(0), "WithRetryInterval(0s): want 10ms <= interval"},
		{elector.WithRetryInterval(9 * time.Millisecond), "WithRetryInterval(9ms): want 10ms <= interval"},
		{elector.WithRetryInterval(math.MaxInt64), "WithRetryInterval(2562047h47m16.854775807s)"},
		{elector.WithBackoff(-1, time.Second), "WithBackoff(-1ns, 1s): min: want 10ms <= -1ns"},
		{elector.WithBackoff(0, 0), "WithBackoff(0s, 0s): min: want 10ms <= 0s"},
		{elector.WithBackoff(2*time.Second, time.Second), "WithBackoff(2s, 1s): want min <= max"},
		{elector.WithBackoff(time.Second, math.MaxInt64), "WithBackoff(1s, 2562047h47m16.854775807s): max: want"},
		{elector.WithTokenEpoch(-1), "WithTokenEpoch(-1): want 0 <= n <= 32766"},
		{elector.WithTokenEpoch(32767), "WithTokenEpoch(32767): want 0 <= n <= 32766"},
		{elector.WithMaxAttempts(-1), "WithMaxAttempts(-1): want n >= 0"},
		{elector.WithLease(-time.Second), "WithLease(-1s): want 1s <= lease <= 24h0m0s"},
		{elector.WithLease(999 * time.Millisecond), "WithLease(999ms): want 1s <= lease"},
		{elector.WithLease(25 * time.Hour), "WithLease(25h0m0s): want 1s <= lease <= 24h0m0s"},
		{elector.WithHeartbeatInterval(-time.Second), "WithHeartbeatInterval(-1s): want heartbeat interval >= 50ms"},
		{elector.WithHeartbeatInterval(0), "WithHeartbeatInterval(0s): want heartbeat interval >= 50ms"},
		{elector.WithHeartbeatInterval(4 * time.Second), "WithHeartbeatInterval(4s) with WithLease(10s) and WithDrain(2s): want 2*heartbeat <= lease - lease/10 - drain, but that is 7s"},
		{elector.WithHeartbeatInterval(math.MaxInt64), "want 2*heartbeat <="},
		{elector.WithDrain(-1), "WithDrain(-1ns): want drain >= 0"},
		{elector.WithDrain(9 * time.Second), "WithDrain(9s): want 2*heartbeat <="},
		{healthy(elector.HealthPolicy{Minimum: -0.1}), "WithHealth: Minimum -0.1: want 0 < minimum <= 1"},
		{healthy(elector.HealthPolicy{Minimum: 1.1}), "WithHealth: Minimum 1.1: want 0 < minimum <= 1"},
		{healthy(elector.HealthPolicy{Minimum: math.NaN()}), "WithHealth: Minimum NaN: want 0 < minimum <= 1"},
		{healthy(elector.HealthPolicy{Interval: 9 * time.Millisecond}), "WithHealth: Interval 9ms: want 10ms <= 9ms <= 1h0m0s"},
		{healthy(elector.HealthPolicy{Interval: math.MaxInt64}), "WithHealth: Interval 2562047h47m16.854775807s: want 10ms <="},
		{healthy(elector.HealthPolicy{StepDownAfter: -1}), "WithHealth: StepDownAfter -1: want 1 <= n <= 1000"},
		{healthy(elector.HealthPolicy{StepDownAfter: 1001}), "WithHealth: StepDownAfter 1001: want 1 <= n <= 1000"},
		{elector.WithReadOnlyTimeout(-1), "WithReadOnlyTimeout(-1ns): want 0 <= timeout <= 24h0m0s"},
		{elector.WithReadOnlyTimeout(24*time.Hour + 1), "WithReadOnlyTimeout(24h0m0.000000001s): want 0 <= timeout <= 24h0m0s"},
		{elector.WithScope(3), "WithScope(3): want Auto, SessionScope or TransactionScope"},
		{elector.WithTakeover(3), "WithTakeover(3): want Deputy, Wait or Poll"},
		{elector.WithValidateInterval(99 * time.Millisecond), "WithValidateInterval(99ms): want 0 or interval >= 100ms"},
		{elector.WithValidateInterval(20*time.Second + 1), "WithValidateInterval(20.000000001s) with WithHeartbeatInterval(2s): want interval <= ten heartbeat intervals, which is how often a leader looks at the least"},
		{elector.WithDeputyInterval(9 * time.Millisecond), "WithDeputyInterval(9ms): want interval >= 10ms"},
		{elector.WithDeputyInterval(2*time.Second + 1), "WithDeputyInterval(2.000000001s) with WithHeartbeatInterval(2s): want deputy interval <= heartbeat interval"},
		{healthy(elector.HealthPolicy{CampaignAfter: -1}), "WithHealth: CampaignAfter -1: want 1 <= n <= 1000"},
		{healthy(elector.HealthPolicy{CampaignAfter: 1001}), "WithHealth: CampaignAfter 1001: want 1 <= n <= 1000"},
		{elector.WithLockDelay(10*time.Second - 1), "WithLockDelay(9.999999999s) with WithLease(10s): want the longest lease of all candidates: 10s <= longest lease <= 24h0m0s"},
		{elector.WithLockDelay(24*time.Hour + 1), "<= longest lease <= 24h0m0s"},
		{elector.WithPreemptDelay(10*time.Millisecond - 1), "WithPreemptDelay(9.999999ms): want 10ms <= delay <= 24h0m0s"},
		{elector.WithPreemptDelay(24*time.Hour + 1), "want 10ms <= delay <= 24h0m0s"},
		{elector.WithPreemptDelay(time.Minute), "WithPreemptDelay(1m0s): want a priority, too"},
		{elector.WithNotifier(nil), "WithNotifier(nil): want a notifier"},
		{elector.WithHooks(nil), "WithHooks: hook 1: hooks: <nil> receives no event"},
		{elector.WithHooks(hooks.Funcs{Error: func(context.Context, hooks.Failure) {}}, calledNothing{}), "WithHooks: hook 2: hooks: elector_test.calledNothing receives no event"},
		{elector.WithHooks(hooks.Funcs{}), "hooks: hooks.Funcs receives no event"},
	} {
		e, err := elector.New(newPool(t), "orders", c.opt)
		if !errors.Is(err, elector.ErrConfig) || e != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
		if named := new(elector.OptionError); errors.As(err, &named) && !strings.HasPrefix(named.Error(), "With") {
			t.Errorf("got  %v, not the option's name first", named)
		}
	}
}

func TestABadElectionOrPoolIsRefused(t *testing.T) {
	for _, election := range []string{"", "a\x00b", strings.Repeat("x", 1025), "orders\n", " orders", "or\x1bders", "orders\u200b"} {
		_, err := elector.New(newPool(t), election)
		if _, asked := elector.RequestResign(t.Context(), newPool(t), election); asked == nil || err == nil || asked.Error() != err.Error() {
			t.Errorf("%.10q: a request says %v", election, asked)
		}
		if !errors.Is(err, elector.ErrConfig) || !strings.Contains(err.Error(), "election name") || len(err.Error()) > 200 {
			t.Errorf("%.10q: got %v", election, err)
		}
	}
	if _, err := elector.New(nil, "orders"); !errors.Is(err, elector.ErrConfig) || !strings.Contains(err.Error(), "the pool is nil") {
		t.Errorf("got %v", err)
	}
}

func TestAPoolThatIsTooSmallIsRefused(t *testing.T) {
	pool := newPool(t)
	for n, refused := range map[int]bool{1: true, 2: false, 0: false} {
		pool.SetMaxOpenConns(n)
		_, err := elector.NewSession(pool)
		if _, ownErr := elector.New(pool, "orders"); errors.Is(err, elector.ErrConfig) != refused || errors.Is(ownErr, elector.ErrConfig) != refused {
			t.Errorf("of %d: got %v and %v", n, err, ownErr)
		}
	}
}

func TestAPriorityIsRefusedWhereItCannotWork(t *testing.T) {
	_, err := elector.New(newPool(t), "orders", elector.WithPriority(-3), elector.WithRequests(false))
	if want := "WithPriority(-3) with WithRequests(false): want one of them: a priority moves leadership by a request to the leader"; !errors.Is(err, elector.ErrConfig) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	pool := newPool(t)
	pool.SetMaxOpenConns(2)
	if _, err := elector.New(pool, "orders", elector.WithPriority(1)); !errors.Is(err, elector.ErrConfig) || !strings.Contains(err.Error(), "want at least 3") {
		t.Errorf("got %v", err)
	}
}

func TestGoodOptionsAreAccepted(t *testing.T) {
	id := strings.Repeat("~", 61) + " ~"
	e, err := elector.New(newPool(t), strings.Repeat("x", 1024),
		elector.WithKey(-1), elector.WithCandidateID(id), elector.WithRetryInterval(10*time.Millisecond),
		elector.WithBackoff(time.Second, time.Second), elector.WithMaxAttempts(0), elector.WithLease(24*time.Hour),
		elector.WithHeartbeatInterval(time.Hour), elector.WithDrain(0), elector.WithHooks(), elector.WithGracefulRelease(false),
		healthy(elector.HealthPolicy{Minimum: 1, Interval: time.Hour, StepDownAfter: 1000, CampaignAfter: 1000}))
	if err != nil || e.Key() != -1 || e.CandidateID() != id || len(e.Election()) != 1024 {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestTheBoundsOfOptionsAreAccepted(t *testing.T) {
	const day = 24 * time.Hour
	for _, opts := range [][]elector.Option{
		{elector.WithRetryInterval(day), elector.WithReadOnlyTimeout(day), elector.WithTokenEpoch(32766), elector.WithBackoff(10*time.Millisecond, day)},
		{elector.WithReadOnlyTimeout(0), elector.WithTokenEpoch(0), elector.WithDeputyInterval(10 * time.Millisecond), elector.WithSynchronousStandby(day), elector.WithLockDelay(day)},
	} {
		if _, err := elector.New(newPool(t), "orders", opts...); err != nil {
			t.Error(err)
		}
	}
}

func TestALockInsideATransactionIsOfOneElectionThatNoStandbyAcknowledges(t *testing.T) {
	const want = "WithScope(TransactionScope): want SessionScope or Auto"
	_, alone := elector.New(newPool(t), "orders", elector.WithScope(elector.TransactionScope), elector.WithSynchronousStandby(time.Minute))
	_, shared := elector.NewSession(newPool(t), elector.WithScope(elector.TransactionScope))
	for _, err := range []error{alone, shared} {
		if !errors.Is(err, elector.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestTheSmallestHealthPolicyIsAccepted(t *testing.T) {
	least := elector.HealthPolicy{Minimum: math.SmallestNonzeroFloat64, Interval: 10 * time.Millisecond, StepDownAfter: 1, CampaignAfter: 1}
	if _, err := elector.New(newPool(t), "orders", healthy(least)); err != nil {
		t.Error(err)
	}
}

func TestTheKeyIsThatOfTheNameUnlessChosen(t *testing.T) {
	e, err := elector.New(newPool(t), "orders")
	if err != nil || e.Key() != elector.KeyFromName("orders") || e.Election() != "orders" {
		t.Errorf("got %d, %v", e.Key(), err)
	}
	e, err = elector.New(newPool(t), "orders", elector.WithKey(0))
	if err != nil || e.Key() != 0 {
		t.Errorf("got %d, %v", e.Key(), err)
	}
}

func TestWithHooksMayBeUsedMoreThanOnce(t *testing.T) {
	var called []string
	hook := func(name string) hooks.Hook {
		return hooks.Funcs{Error: func(context.Context, hooks.Failure) { called = append(called, name) }}
	}
	e, err := elector.New(newPool(t), "orders", elector.WithHooks(hook("a"), hook("b")), elector.WithHooks(hook("c")))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := e.TryCampaign(t.Context()); err == nil { // the mock accepts no statement
		t.Error("no error")
	}
	if got := strings.Join(called, ""); got != "abc" {
		t.Errorf("called %s, want abc", got)
	}
}

func TestSettingsSayThePriority(t *testing.T) {
	for _, c := range []struct {
		opts  []elector.Option
		delay time.Duration
	}{
		{[]elector.Option{elector.WithPriority(-3)}, 10 * time.Second},
		{[]elector.Option{elector.WithPriority(-3), elector.WithPreemptDelay(time.Minute)}, time.Minute},
	} {
		e, err := elector.New(newPool(t), "orders", c.opts...)
		if err != nil || e.Settings().Priority != -3 || e.Settings().PreemptDelay != c.delay {
			t.Errorf("got %+v, %v", e.Settings(), err)
		}
	}
}

func TestSettingsAreThoseInForce(t *testing.T) {
	e, err := elector.New(newPool(t), "orders", elector.WithLease(20*time.Second), elector.WithRequests(false), elector.WithLockDelay(time.Minute))
	want := elector.Settings{Lease: 20 * time.Second, HeartbeatInterval: 4 * time.Second, Drain: 4 * time.Second, Validity: 14 * time.Second,
		RetryInterval: 3 * time.Second, DeputyInterval: 100 * time.Millisecond, BackoffMin: time.Second, BackoffMax: 5 * time.Second,
		ValidateInterval: time.Second, LockDelay: time.Minute, Health: elector.HealthPolicy{Minimum: 0.5}}
	if err != nil || e.Settings() != want {
		t.Errorf("got %+v, %v", e.Settings(), err)
	}
	for _, c := range []struct {
		opts     []elector.Option
		takeover elector.Takeover
		retry    time.Duration
	}{
		{nil, elector.Poll, time.Second},
		{[]elector.Option{elector.WithTakeover(elector.Poll)}, elector.Poll, time.Second},
		{[]elector.Option{elector.WithTakeover(elector.Deputy)}, elector.Deputy, 3 * time.Second},
		{[]elector.Option{elector.WithRetryInterval(5 * time.Second)}, elector.Poll, 5 * time.Second},
	} {
		e, err := elector.New(newPool(t), "orders", append(c.opts, elector.WithScope(elector.TransactionScope))...)
		if got := e.Settings(); err != nil || got.Scope != elector.TransactionScope || got.Takeover != c.takeover || got.RetryInterval != c.retry {
			t.Errorf("got %+v, %v", got, err)
		}
	}
}

func TestWithoutACheckACandidateIsHealthy(t *testing.T) {
	e, err := elector.New(newPool(t), "orders")
	if h := e.Health(); err != nil || !h.Healthy || h.Score != 1 || !h.At.IsZero() || h.Err != nil {
		t.Errorf("got %+v, %v", h, err)
	}
}

// The compiler refuses options that are of no use to a session, or to one of its elections, by
// their types.
func TestAnOptionIsAcceptedOnlyWhereItIsUsed(t *testing.T) {
	for name, c := range map[string]struct {
		opt                        elector.Option
		session, election, request bool
	}{
		"WithCandidateID":        {elector.WithCandidateID("web-1"), true, false, false},
		"WithRetryInterval":      {elector.WithRetryInterval(time.Second), true, false, false},
		"WithLease":              {elector.WithLease(10 * time.Second), true, false, false},
		"WithHeartbeatInterval":  {elector.WithHeartbeatInterval(2 * time.Second), true, false, false},
		"WithValidateInterval":   {elector.WithValidateInterval(0), true, false, false},
		"WithDrain":              {elector.WithDrain(2 * time.Second), true, false, false},
		"WithTokenEpoch":         {elector.WithTokenEpoch(1), true, false, false},
		"WithHold":               {elector.WithHold(time.Minute), false, true, false},
		"WithKey":                {elector.WithKey(1), false, true, true},
		"WithGracefulRelease":    {elector.WithGracefulRelease(true), false, false, false},
		"WithTakeover":           {elector.WithTakeover(elector.Poll), true, false, false},
		"WithPriority":           {elector.WithPriority(1), true, false, false},
		"WithPreemptDelay":       {elector.WithPreemptDelay(time.Second), true, false, false},
		"WithLockDelay":          {elector.WithLockDelay(time.Minute), true, false, false},
		"WithSynchronousStandby": {elector.WithSynchronousStandby(time.Minute), false, false, false},
		"WithBackoff":            {elector.WithBackoff(time.Second, time.Second), true, true, false},
		"WithReadOnlyTimeout":    {elector.WithReadOnlyTimeout(0), true, true, false},
		"WithMaxAttempts":        {elector.WithMaxAttempts(1), true, true, false},
		"WithHooks":              {elector.WithHooks(), true, true, false},
		"WithHealth":             {healthy(elector.HealthPolicy{}), true, true, false},
		"WithRequests":           {elector.WithRequests(false), true, true, false},
		"WithNotifier":           {elector.WithNotifier(nil), true, true, false},
	} {
		_, session := c.opt.(elector.SessionOption)
		_, election := c.opt.(elector.ElectionOption)
		_, request := c.opt.(elector.RequestOption)
		if session != c.session || election != c.election || request != c.request {
			t.Errorf("%s: accepted by NewSession %t, by Session.Elector %t, by RequestResign %t, want %t, %t and %t", name, session, election, request, c.session, c.election, c.request)
		}
	}
}

func TestABadSessionIsRefused(t *testing.T) {
	for want, opt := range map[string]elector.SessionOption{
		"WithLease(0s)":      elector.WithLease(0),
		"WithTakeover(Wait)": elector.WithTakeover(elector.Wait),
		"WithPriority(1): a shared session, and so a member of a group of shards, cannot have a priority": elector.WithPriority(1),
		"option 1 is nil": nil,
	} {
		s, err := elector.NewSession(newPool(t), opt)
		if !errors.Is(err, elector.ErrConfig) || s != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if _, err := elector.NewSession(nil); !errors.Is(err, elector.ErrConfig) || !strings.Contains(err.Error(), "the pool is nil") {
		t.Errorf("got %v", err)
	}
}

func TestTheElectorsOfASessionAreOneCandidateOfManyElections(t *testing.T) {
	session := newSession(t)
	for _, c := range []struct {
		election string
		key      int64
		want     string
	}{
		{"a", 1, ""},
		{"b", 2, ""},
		{"b", 4, ""}, // the key counts
		{"b", 4, `election "b" has the same key (4) as "b" on this session`},
		{"c", 1, `election "c" has the same key (1) as "a" on this session`},
		{"", 3, "election name"},
	} {
		e, err := session.Elector(c.election, elector.WithKey(c.key))
		switch {
		case c.want != "":
			if !errors.Is(err, elector.ErrConfig) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		case err != nil || e.CandidateID() != session.CandidateID():
			t.Errorf("got %v, %v", e, err)
		}
	}
	if _, err := session.Elector("d", elector.WithMaxAttempts(-1)); !errors.Is(err, elector.ErrConfig) {
		t.Errorf("got %v", err)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nowhere is a connector that New must not use.
type nowhere struct{}

func (nowhere) Connect(context.Context) (driver.Conn, error) { return nil, errors.New("New connects") }
func (nowhere) Driver() driver.Driver                        { return nil }

// New accepts exactly what the options document. The bounds are repeated here.
func FuzzNewTakesWhatIsDocumentedAndNothingElse(f *testing.F) {
	const s = int64(time.Second)
	f.Add("orders", "web-1", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("", "web-1", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("or\x00ders", "web-1", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders\n", "web-1", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("or\u202eders", "web-1", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders of today", "web-1", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders", "web-1 ", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders", "web-1", 10*s+s/2000, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders", "hôte", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("\xc6\x00\"", "web-1", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders", "web\r1", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders", "web\xf51", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders", strings.Repeat("x", 64), 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders", "web-1", s, 350*s/1000, 200*s/1000, s/100, s/100, s/100, 1)
	f.Add("orders", "web-1", s, 350*s/1000+1, 200*s/1000, s, s, s, 1)
	f.Add("orders", "web-1", 10*s, 2*s, int64(-1), s, s, s, -1)
	f.Add("orders", "web-1", int64(1<<63-1), int64(1<<63-1), int64(1<<63-1), 25*3600*s, s, s-1, 1)
	// At each bound, and just past it.
	const ms, day = s / 1000, 24 * 3600 * s
	f.Add(strings.Repeat("x", 1024), strings.Repeat("x", 63), day, day, int64(0), day, 10*ms, day, 0)
	f.Add(strings.Repeat("x", 1025), "web-1", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders", "web-1", day, 2*s, 2*s, day, day, day, 0)
	f.Add("orders", "web-1", day+ms, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders", "web-1", s-ms, 50*ms, int64(0), s, s, 5*s, 0)
	f.Add("orders", "web-1", s, 50*ms, int64(0), 10*ms, 10*ms, 10*ms, 0)
	f.Add("orders", "web-1", s, 50*ms-1, int64(0), s, s, 5*s, 0)
	f.Add("orders", "web-1", 10*s, 2*s, 2*s, day+1, s, 5*s, 0)
	f.Add("orders", "web-1", 10*s, 2*s, 2*s, 10*ms-1, s, 5*s, 0)
	f.Add("orders", "web-1", 10*s, 2*s, 2*s, s, 10*ms-1, 5*s, 0)
	f.Add("orders", "web-1", 10*s, 2*s, 2*s, s, s, day+1, 0)
	f.Add("orders", "web-1", 10*s, 2*s, 2*s, s, 2*s, 2*s-1, 0)
	f.Fuzz(func(t *testing.T, election, id string, length, heartbeat, drain, retry, least, most int64, attempts int) {
		pool := sql.OpenDB(nowhere{})
		defer pool.Close()
		e, err := elector.New(pool, election,
			elector.WithCandidateID(id),
			elector.WithLease(time.Duration(length)), elector.WithHeartbeatInterval(time.Duration(heartbeat)), elector.WithDrain(time.Duration(drain)),
			elector.WithRetryInterval(time.Duration(retry)), elector.WithBackoff(time.Duration(least), time.Duration(most)), elector.WithMaxAttempts(attempts))
		wait := func(d int64) bool { return 10*ms <= d && d <= day }
		allowed := election != "" && len(election) <= 1024 && utf8.ValidString(election) && strings.Trim(election, " ") == election &&
			!strings.ContainsFunc(election, func(r rune) bool { return !unicode.IsPrint(r) }) &&
			id != "" && len(id) <= 63 && strings.Trim(id, printable) == "" && strings.Trim(id, " ") == id &&
			s <= length && length <= day && length%ms == 0 && 50*ms <= heartbeat && heartbeat <= day &&
			0 <= drain && drain <= day && 2*heartbeat <= length-length/10-drain &&
			wait(retry) && wait(least) && wait(most) && least <= most && attempts >= 0
		switch {
		case allowed && err != nil:
			t.Errorf("refused: %v", err)
		case !allowed && !errors.Is(err, elector.ErrConfig):
			t.Errorf("accepted, or refused with another error: %v", err)
		case allowed && (e.Election() != election || e.CandidateID() != id || e.Key() != elector.KeyFromName(election)):
			t.Errorf("got candidate %q of %q with key %d", e.CandidateID(), e.Election(), e.Key())
		}
	})
}

const printable = " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"

func TestWhatALogShowsCanBeRead(t *testing.T) {
	e, err := elector.New(newPool(t), "orders", elector.WithCandidateID("web-1"))
	if err != nil {
		t.Fatal(err)
	}
	for want, value := range map[string]any{
		"lease=10s heartbeat=2s drain=2s validity=7s retry=3s deputy=100ms scope=auto takeover=deputy requests=true " +
			"backoff=1s..5s attempts=0 minimum=0.5 check=0s stepdown=0 campaign=0 stay=false validate=1s lockdelay=0s hold=0s priority=0 preempt=0s listens=false": e.Settings(),
		`candidate "web-1" of election "orders"`: e,
		"auto":                                   elector.Auto,
		"session":                                elector.SessionScope,
		"transaction":                            elector.TransactionScope,
		"deputy":                                 elector.Deputy,
		"wait":                                   elector.Wait,
		"poll":                                   elector.Poll,
		"Scope(3)":                               elector.Scope(3),
		"Takeover(-1)":                           elector.Takeover(-1),
	} {
		if got := fmt.Sprint(value); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
