package elector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/drivertest"
	"github.com/pgelector/pgelector/internal/lease"
)

func TestTheDefaultsAreAsDocumented(t *testing.T) {
	c, err := configure[Option]("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := (lease.Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: 2 * time.Second}); c.lease != want {
		t.Errorf("got %+v, want %+v", c.lease, want)
	}
	if c.retry != 3*time.Second || c.deputyInterval != 100*time.Millisecond || c.backoff != (backoff.Backoff{Min: time.Second, Max: 5 * time.Second}) {
		t.Errorf("retry %v, deputy %v, backoff %v", c.retry, c.deputyInterval, c.backoff)
	}
	if c, err := configure("orders", []Option{WithTakeover(Poll)}); err != nil || c.retry != time.Second {
		t.Errorf("retry %v, %v with Poll", c.retry, err)
	}
	if c.maxAttempts != 0 || !c.gracefulRelease || c.key != KeyFromName("orders") || len(c.hooks) != 0 {
		t.Errorf("got %+v", c)
	}
	if minRetry != 10*time.Millisecond || maxRetry != 24*time.Hour || maxCandidateID != 63 || maxElectionBytes != 1024 {
		t.Error("a documented bound was changed: change its documents too")
	}
}

func TestTheDefaultsOfALeaseKeepWhatIsSet(t *testing.T) {
	c, err := configure("orders", []Option{WithDrain(0), WithHeartbeatInterval(time.Second), WithLease(20 * time.Second)})
	if want := (lease.Lease{Length: 20 * time.Second, Heartbeat: time.Second}); err != nil || c.lease != want {
		t.Errorf("got %+v, %v, want %+v", c.lease, err, want)
	}
	c, err = configure("orders", []Option{WithLease(20 * time.Second)})
	if want := (lease.Lease{Length: 20 * time.Second, Heartbeat: 4 * time.Second, Drain: 4 * time.Second}); err != nil || c.lease != want {
		t.Errorf("got %+v, %v, want %+v", c.lease, err, want)
	}
}

// What New fills in, however the other options are set, is what its own option takes.
func TestEveryDefaultIsWithinTheBoundsOfItsOption(t *testing.T) {
	check := func(context.Context) HealthReport { return HealthReport{Score: 1} }
	for name, opts := range map[string][]Option{
		"none":                      nil,
		"the shortest lease":        {WithLease(minLease)},
		"the longest lease":         {WithLease(maxLease)},
		"the shortest heartbeat":    {WithHeartbeatInterval(minHeartbeat)},
		"no drain":                  {WithDrain(0)},
		"the shortest retry":        {WithRetryInterval(minRetry)},
		"the longest retry":         {WithRetryInterval(maxRetry)},
		"the longest retry, inside": {WithRetryInterval(maxRetry), WithScope(TransactionScope)},
		"a poller":                  {WithTakeover(Poll)},
		"a health check":            {WithHealth(check, HealthPolicy{})},
	} {
		c, err := configure("orders", opts)
		if err != nil {
			t.Fatal(name, err)
		}
		chosen := []Option{WithLease(c.lease.Length), WithHeartbeatInterval(c.lease.Heartbeat), WithDrain(c.lease.Drain), WithRetryInterval(c.retry),
			WithRetryInterval(c.retryInside), WithBackoff(c.backoff.Min, c.backoff.Max), WithReadOnlyTimeout(c.readOnlyTimeout), WithMaxAttempts(c.maxAttempts),
			WithDeputyInterval(c.deputyInterval), WithCandidateID(c.candidateID), WithTokenEpoch(int(c.tokenEpoch)), WithScope(c.scope), WithTakeover(c.takeover)}
		if c.check != nil {
			chosen = append(chosen, WithHealth(check, c.healthPolicy))
		}
		if _, err := configure("orders", chosen); err != nil {
			t.Errorf("%s: a default is refused when it is chosen: %v", name, err)
		}
	}
}

func TestTheDefaultCandidateIDIsHostPidAndRandom(t *testing.T) {
	c, err := configure[Option]("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	shape := regexp.MustCompile(fmt.Sprintf(`^[!-~]+-%d-[0-9a-f]{6}$`, os.Getpid()))
	if !shape.MatchString(c.candidateID) {
		t.Errorf("got %q", c.candidateID)
	}
	if other, _ := configure[Option]("orders", nil); other.candidateID == c.candidateID {
		t.Errorf("two candidates are %q", c.candidateID)
	}
}

func TestEveryHostNameMakesAValidCandidateID(t *testing.T) {
	for host, want := range map[string]string{
		"web-1":                  "web-1-",
		"":                       "host-",
		"my host\t1":             "my-host-1-",
		"hôte":                   "h-te-",
		"~me":                    "~me-",
		"\x00\xff\xfe":           "----",
		"日本":                     "---",
		strings.Repeat("x", 500): "xxxxxxxx",
	} {
		id := newCandidateID(host)
		if err := WithCandidateID(id).apply(&config{}); err != nil || !strings.HasPrefix(id, want) {
			t.Errorf("%q: got %q, %v", host, id, err)
		}
		if !strings.Contains(id, fmt.Sprintf("-%d-", os.Getpid())) {
			t.Errorf("%q: got %q: no process id", host, id)
		}
	}
}

func FuzzNewCandidateID(f *testing.F) {
	for _, host := range []string{"web-1", "", "삢", "000 00 000", "\xf2\xbe\xbf\xd2", "00\xf40", " " + strings.Repeat("0", 32), " " + strings.Repeat("0", 128)} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if err := WithCandidateID(newCandidateID(host)).apply(&config{}); err != nil {
			t.Error(err)
		}
	})
}

// psql 15 computed these keys with the statement in KeyFromName's comment. If a key changed,
// candidates of two versions would not share an election during an upgrade.
var keys = map[string]int64{
	"orders":            -7492410215596134511,
	"billing/eu-west-1": -2991714905196165443,
	"выборы":            8592206458694887086,
	"a":                 -8185445610673149645,
	"outbox publisher":  4948570440837444456,
}

func TestKeyFromNameIsWhatPostgreSQLComputes(t *testing.T) {
	for name, want := range keys {
		if got := KeyFromName(name); got != want {
			t.Errorf("KeyFromName(%q) = %d, want %d", name, got, want)
		}
	}
}

func FuzzKeyFromName(f *testing.F) {
	for name := range keys {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		sum := sha256.Sum256([]byte("pgelector:" + name))
		bits, err := strconv.ParseUint(hex.EncodeToString(sum[:])[:16], 16, 64)
		if err != nil || KeyFromName(name) != int64(bits) {
			t.Errorf("KeyFromName(%q) = %d, want %d, %v", name, KeyFromName(name), int64(bits), err)
		}
	})
}

func newLease(length, heartbeat, drain time.Duration) lease.Lease {
	return lease.Lease{Length: length, Heartbeat: heartbeat, Drain: drain}
}

func TestTheBoundsOfALeaseAreAsDocumented(t *testing.T) {
	if minLease != time.Second || maxLease != 24*time.Hour || minHeartbeat != 50*time.Millisecond || maxHeartbeat != 30*time.Second {
		t.Error("a documented bound was changed: change its documents too")
	}
	l := leaseOf(defaultLease)
	if l != newLease(10*time.Second, 2*time.Second, 2*time.Second) || l.Margin() != time.Second || l.Validity() != 7*time.Second || l.Safety() != 9*time.Second {
		t.Errorf("%+v: margin %v, validity %v, safety %v", l, l.Margin(), l.Validity(), l.Safety())
	}
}

func TestALeaseIsRefusedWithTheInequalityThatFails(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		l    lease.Lease
		want string // "" is none
	}{
		{newLease(10*s, 2*s, 2*s), ""},
		{newLease(s, 350*time.Millisecond, 200*time.Millisecond), ""}, // 2*350 ms is all of the validity
		{newLease(s, 350*time.Millisecond+1, 200*time.Millisecond), "2*heartbeat <= lease - lease/10 - drain, but that is 700ms"},
		{newLease(10*s, 4500*time.Millisecond, 0), ""},
		{newLease(10*s, 4501*time.Millisecond, 0), "2*heartbeat <= lease - lease/10 - drain, but that is 9s"},
		{newLease(10*s, 50*time.Millisecond, 8900*time.Millisecond), ""},
		{newLease(10*s, 50*time.Millisecond, 8901*time.Millisecond), "2*heartbeat <="},
		{newLease(10*s, 50*time.Millisecond, 20*s), "2*heartbeat <="},
		{newLease(24*time.Hour, s, s), ""},
		{newLease(24*time.Hour+1, s, s), "1s <= lease <= 24h0m0s"},
		{newLease(s-1, s, s), "1s <= lease <= 24h0m0s"},
		{newLease(0, s, s), "WithLease(0s)"},
		{newLease(-s, s, s), "WithLease(-1s)"},
		{newLease(10*s, 2*s, -1), "WithDrain(-1ns): want drain >= 0"},
		{newLease(10*s, 50*time.Millisecond-1, s), "heartbeat interval >= 50ms"},
		{newLease(10*s, 0, s), "WithHeartbeatInterval(0s)"},
		{newLease(10*s, -s, s), "WithHeartbeatInterval(-1s)"},
		{newLease(10*s, math.MaxInt64, s), "2*heartbeat <="},
		{newLease(10*s, math.MaxInt64/2+2, s), "2*heartbeat <="},
		{newLease(10*s, s, math.MaxInt64), "2*heartbeat <="},
	} {
		err := (&config{lease: c.l}).checkLease()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got %v, want %q", c.l, err, c.want)
		}
	}
}

// A lease that passes the check has its deadlines in the promised order, and time for a heartbeat
// that is answered late.
func TestALeaseThatPassesTheCheckHoldsTogether(t *testing.T) {
	holds := func(length, heartbeat, drain int64) bool {
		l := newLease(time.Duration(length), time.Duration(heartbeat), time.Duration(drain))
		if (&config{lease: l}).checkLease() != nil {
			return true
		}
		return 0 < l.Heartbeat && 2*l.Heartbeat <= l.Validity() && l.Validity()+l.Drain == l.Safety() &&
			l.Safety()+l.Margin() == l.Length && l.Margin() > 0 && l.Drain >= 0 && l.Length >= minLease
	}
	near := func(a, b, c int64) bool { // near the bounds
		return holds(a%int64(2*maxLease), b%int64(2*maxLease), c%int64(2*maxLease)) && holds(a%int64(20*time.Second), b%int64(5*time.Second), c%int64(10*time.Second))
	}
	for _, property := range []any{holds, near} {
		if err := quick.Check(property, &quick.Config{MaxCount: 20000}); err != nil {
			t.Error(err)
		}
	}
}

func TestEveryAllowedLengthHasALeaseThatPasses(t *testing.T) {
	for length := minLease; length <= maxLease; length += 7*time.Second + 13*time.Millisecond {
		if err := (&config{lease: leaseOf(length)}).checkLease(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheDefaultHeartbeatStaysBelowTheIdleTimeoutOfFirewalls(t *testing.T) {
	if got := leaseOf(24 * time.Hour).Heartbeat; got != 30*time.Second {
		t.Errorf("got %v", got)
	}
}

// A part that no option turns on is not called: it is not made. (The deputy's and the poolers' are made always, and do
// nothing without a deputy or a pooler.)
func TestOnlyThePartsThatAnOptionTurnsOnAreMade(t *testing.T) {
	pool := (&drivertest.Driver{}).Open()
	defer pool.Close()
	parts := func(opts ...Option) (names []string) {
		e, err := New(pool, "orders", opts...)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range e.kernel.Source().Parts {
			names = append(names, strings.TrimPrefix(fmt.Sprintf("%T", part), "*"))
		}
		return names
	}
	always := []string{"preflight.Part", "live.Part", "transaction.Part", "listen.Part", "promotion.Part", "validate.Part", "deputy.Acquirer", "pooled.Evictor"}
	last := []string{"elector.beats", "inbox.Part"}
	for _, c := range []struct {
		opts []Option
		more []string
	}{
		{nil, nil},
		{[]Option{WithSynchronousStandby(time.Minute)}, []string{"syncrep.Part"}},
		{[]Option{WithLockDelay(time.Minute)}, []string{"lockdelay.Part"}},
		{[]Option{WithPriority(0)}, []string{"preference.Part"}},
	} {
		if got, want := parts(c.opts...), slices.Concat(always, c.more, last); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}
