package oplog_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/internal/oplog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ctx        = context.Background()
	a          = hooks.Origin{Election: "orders", Key: 42, CandidateID: "a"}
	b          = hooks.Origin{Election: "orders", Key: 42, CandidateID: "b"}
	start      = time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)
	errRefused = errors.New("connection refused")

	errPanicked = fmt.Errorf("a hook panicked: %w", panicked{})
)

// panicked is the error of a panic, as package elector makes it.
type panicked struct{}

func (panicked) Error() string { return "oops" }
func (panicked) Stack() string { return "goroutine 1" }

// log records the lines of a Hook.
type log struct {
	mu    sync.Mutex
	lines []line
}

type line struct {
	level   oplog.Level
	message string
	fields  []any
}

func (l *log) write(_ context.Context, level oplog.Level, message string, fields ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line{level, message, fields})
}

var levelNames = map[oplog.Level]string{
	oplog.Trace: "trace", oplog.Info: "info", oplog.Warn: "warn", oplog.Error: "error",
}

// from renders the lines at a level and above, without the fields that every line has.
func (l *log) from(lowest oplog.Level) []string {
	var out []string
	for _, line := range l.lines {
		if line.level < lowest {
			continue
		}
		text := levelNames[line.level] + " " + line.message
		for i := 6; i < len(line.fields); i += 2 {
			text += fmt.Sprintf(" %s=%v", line.fields[i], line.fields[i+1])
		}
		out = append(out, text)
	}
	return out
}

// attempt reports one attempt, d after start.
func attempt(h *oplog.Hook, who hooks.Origin, n int, outcome hooks.Outcome, d time.Duration) {
	at := start.Add(d)
	if outcome == hooks.Failed {
		h.OnError(ctx, hooks.Failure{Origin: who, Op: hooks.OpCampaign, Err: errRefused, At: at, Attempt: n})
	}
	h.OnCampaign(ctx, hooks.Campaign{Origin: who, Attempt: n, Outcome: outcome, At: at})
}

// everything calls h with an event for each line.
func everything(t *testing.T, h *oplog.Hook) {
	synctest.Test(t, func(*testing.T) {
		everythingAtOnce(h)
		synctest.Wait() // what returns is logged on a goroutine
	})
}

func everythingAtOnce(h *oplog.Hook) {
	attempt(h, a, 1, hooks.Failed, 0)
	attempt(h, a, 2, hooks.Failed, 1)
	h.OnCampaign(ctx, hooks.Campaign{Origin: a, Attempt: 3, Outcome: hooks.Busy, Deputy: true, InTransaction: true})
	h.OnCampaign(ctx, hooks.Campaign{Origin: a, Attempt: 4, Outcome: hooks.TooEarly, Next: time.Second})
	h.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpHeartbeat})
	for range 2 { // it says once that it does not listen
		h.OnElected(ctx, hooks.Elected{Origin: a, NotListening: errRefused})
	}
	attempt(h, a, 4, hooks.Failed, 0)
	h.OnElected(ctx, hooks.Elected{Origin: a, Previous: "b", Offered: true, Leaderless: 1})
	attempt(h, a, 5, hooks.Failed, 0)
	h.OnElected(ctx, hooks.Elected{Origin: a, Previous: "a", PreviousReason: hooks.Resigned, Leaderless: 1})
	h.OnHeartbeat(ctx, hooks.Heartbeat{Origin: a})
	for _, previous := range []string{"a", "b", "c"} {
		for _, current := range []string{"", "a", "b"} {
			h.OnLeaderChanged(ctx, hooks.LeaderChanged{Origin: a, Previous: previous, Current: current, PID: int32(len(current))})
			h.OnLeaderChanged(ctx, hooks.LeaderChanged{Origin: a, Previous: previous, Current: current, PID: 1})
		}
	}
	h.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpHeartbeat})
	for _, reason := range hooks.Reasons() {
		h.OnDemoted(ctx, hooks.Demoted{Origin: a, Reason: reason})
	}
	h.OnDemoted(ctx, hooks.Demoted{Origin: a, Reason: hooks.LeaseExpired, Late: time.Second})
	h.OnDemoted(ctx, hooks.Demoted{Origin: a, Reason: hooks.Resigned, LeadReturned: true})
	h.OnDemoted(ctx, hooks.Demoted{Origin: a, Reason: hooks.Unhealthy, Err: errRefused})
	for _, op := range []hooks.Op{hooks.OpHealth, hooks.OpHook} {
		for range 2 { // the second time traced
			h.OnError(ctx, hooks.Failure{Origin: a, Op: op, Err: errPanicked})
		}
		h.OnDemoted(ctx, hooks.Demoted{Origin: a, Reason: hooks.LeadFailed, Err: errRefused})
		for range 2 {
			h.OnError(ctx, hooks.Failure{Origin: a, Op: op, Err: errRefused})
		}
		h.OnDemoted(ctx, hooks.Demoted{Origin: a, Reason: hooks.LeadFailed, Err: errRefused})
	}
	for _, op := range []hooks.Op{
		hooks.OpRelease, hooks.OpWork, hooks.OpLead, hooks.OpHealth, hooks.OpSetting, hooks.OpRequest, hooks.OpCall, hooks.OpToken, hooks.OpLeader, hooks.OpPool,
	} {
		h.OnError(ctx, hooks.Failure{Origin: a, Op: op})
	}
	for range 2 {
		h.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpLeader, Err: errRefused})
	}
	h.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpCampaign, Permanent: true})
	h.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpSetting, Permanent: true})
	for _, op := range []hooks.Op{hooks.OpWork, hooks.OpHook, hooks.OpPool} {
		returned := make(chan struct{})
		h.OnError(ctx, hooks.Failure{Origin: a, Op: op, Returned: returned})
		if op == hooks.OpWork {
			h.OnError(ctx, hooks.Failure{Origin: a, Op: op, Returned: returned})
		}
		close(returned)
	}
	h.OnCampaign(ctx, hooks.Campaign{Origin: a, Outcome: hooks.Busy, WasUnhealthy: time.Second})
}

// A row documents the lines of one message and level. Fields in brackets may be missing.
type row struct {
	level, message, fields string
	all                    map[string]bool // of the fields, whether they may be missing
	seen                   map[string]bool // of the optional fields
	written                bool
}

func documentedRow(m []string) *row {
	r := &row{level: m[1], message: m[2], fields: m[3], all: map[string]bool{}, seen: map[string]bool{}}
	optional := false
	for _, field := range strings.Fields(m[3]) {
		if field == "-" { // none
			continue
		}
		optional = optional || strings.HasPrefix(field, "[")
		r.all[strings.Trim(field, "[]")] = optional
		optional = optional && !strings.HasSuffix(field, "]")
	}
	return r
}

// has reports whether the row documents the line, and notes its optional fields.
func (r *row) has(l line) bool {
	if r.level != levelNames[l.level] || r.message != l.message {
		return false
	}
	has := map[string]bool{}
	for i := 6; i < len(l.fields); i += 2 {
		has[l.fields[i].(string)] = true
	}
	for field := range has {
		if _, documented := r.all[field]; !documented {
			return false
		}
	}
	for field, optional := range r.all {
		if !has[field] && !optional {
			return false
		}
	}
	r.written = true
	for field := range has {
		r.seen[field] = r.seen[field] || r.all[field]
	}
	return true
}

func TestTheAdaptersDocumentExactlyTheLinesThatAreWritten(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	everything(t, h)
	h.OnError(ctx, hooks.Failure{Op: hooks.OpCampaign})
	text := regexp.MustCompile(`(?m)^//\t(\w+) {2,}(\S+(?: \S+)*) {2,}(\S+(?: \S+)*)(?: {2,}.*)?$`)
	for _, file := range []string{"../../slog/slog.go", "../../hclog/hclog.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var documented []*row
		for _, m := range text.FindAllStringSubmatch(string(source), -1) {
			documented = append(documented, documentedRow(m))
		}
		for _, line := range l.lines {
			if !slices.ContainsFunc(documented, func(r *row) bool { return r.has(line) }) {
				t.Errorf("%s does not document %s %s %v", file, levelNames[line.level], line.message, line.fields[6:])
			}
		}
		for _, r := range documented {
			for field, optional := range r.all {
				if !r.written || optional && !r.seen[field] {
					t.Errorf("%s documents %s of %q, which is not written: %s", file, field, r.message, r.fields)
				}
			}
		}
	}
}

// No OnCampaign says that it succeeds again.
func TestAFailedAttemptOfASharedSessionIsLoggedEachTime(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	for range 2 {
		h.OnError(ctx, hooks.Failure{Origin: hooks.Origin{CandidateID: "a"}, Op: hooks.OpCampaign, Err: errRefused})
	}
	if got := l.from(oplog.Warn); len(got) != 2 {
		t.Errorf("logged %q", got)
	}
}

func TestBecomingDeputyIsLoggedOnce(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	for n, deputy := range []bool{false, true, true, true, false, true} {
		h.OnCampaign(ctx, hooks.Campaign{Origin: a, Attempt: n + 1, Outcome: hooks.Busy, Deputy: deputy})
		h.OnCampaign(ctx, hooks.Campaign{Origin: b, Attempt: n + 1, Outcome: hooks.Busy})
	}
	if got, want := l.from(oplog.Info), []string{"info became deputy", "info became deputy"}; !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}

func TestACandidateThatWaitsOnANewServerSaysSoOnce(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	for n, outcome := range []hooks.Outcome{hooks.TooEarly, hooks.TooEarly, hooks.Busy, hooks.Busy, hooks.TooEarly} {
		h.OnCampaign(ctx, hooks.Campaign{Origin: a, Attempt: n + 1, Outcome: outcome, Next: 20 * time.Second})
		h.OnCampaign(ctx, hooks.Campaign{Origin: b, Attempt: n + 1, Outcome: hooks.Busy})
	}
	if got, want := l.from(oplog.Info), []string{"info too early to lead next=20s", "info too early to lead next=20s"}; !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}

func TestTransactionScopeIsLoggedOnce(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	for n := range 3 {
		h.OnCampaign(ctx, hooks.Campaign{Origin: a, Attempt: n + 1, Outcome: hooks.Busy, InTransaction: true})
		h.OnCampaign(ctx, hooks.Campaign{Origin: b, Attempt: n + 1, Outcome: hooks.Busy})
	}
	if got := l.from(oplog.Info); len(got) != 1 || !strings.HasPrefix(got[0], "info transaction scope") {
		t.Errorf("logged %q", got)
	}
	h.OnClosed(ctx, hooks.Closed{Origin: a}) // nothing of it is kept
	h.OnCampaign(ctx, hooks.Campaign{Origin: a, Attempt: 1, Outcome: hooks.Busy, InTransaction: true})
	if got := l.from(oplog.Info); len(got) != 2 {
		t.Errorf("logged %q", got)
	}
}

func TestEveryLineNamesElectionAndCandidate(t *testing.T) {
	var l log
	everything(t, oplog.New(l.write))
	for _, line := range l.lines {
		if got := line.fields[:6]; !slices.Equal(got, []any{"election", "orders", "candidate", "a", "key", "42"}) {
			t.Errorf("%s begins with %v", line.message, got)
		}
	}
}

// As JSON numbers, the largest 64-bit integers would lose digits.
func TestKeysAndTokensAreText(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	origin := hooks.Origin{Key: math.MinInt64 + 1}
	h.OnElected(ctx, hooks.Elected{Origin: origin, Token: math.MaxInt64 - 1})
	h.OnHeartbeat(ctx, hooks.Heartbeat{Origin: origin, Token: math.MaxInt64 - 1})
	h.OnDemoted(ctx, hooks.Demoted{Origin: origin, Token: math.MaxInt64 - 1})
	for _, line := range l.lines {
		if got := line.fields[4:8]; !slices.Equal(got, []any{"key", "-9223372036854775807", "token", "9223372036854775806"}) {
			t.Errorf("%s has %v", line.message, got)
		}
	}
}

func TestTheLevelOfADemotionDependsOnItsReason(t *testing.T) {
	want := map[hooks.Reason]string{
		hooks.Resigned:     "info resigned token=7 held=1m0s",
		hooks.Requested:    "info resigned token=7 reason=requested held=1m0s why=connection refused",
		hooks.Preempted:    "info resigned token=7 reason=preempted held=1m0s why=connection refused",
		hooks.Shutdown:     "info resigned token=7 reason=shutdown held=1m0s",
		hooks.SessionLost:  "warn demoted token=7 reason=session_lost held=1m0s error=connection refused",
		hooks.LeaseExpired: "warn demoted token=7 reason=lease_expired held=1m0s error=connection refused",
		hooks.Unhealthy:    "warn demoted token=7 reason=unhealthy held=1m0s error=connection refused",
		hooks.LeadFailed:   "error demoted token=7 reason=lead_failed held=1m0s error=connection refused",
	}
	for _, reason := range hooks.Reasons() {
		var l log
		oplog.New(l.write).OnDemoted(ctx, hooks.Demoted{
			Origin: a, Token: 7, Reason: reason, Err: errRefused, Held: time.Minute + time.Microsecond,
		})
		if got := l.from(oplog.Trace); !slices.Equal(got, []string{want[reason]}) {
			t.Errorf("got %q, want %q", got, want[reason])
		}
	}
}

func TestAnEndThatIsNoticedLateSaysSo(t *testing.T) {
	for late, want := range map[time.Duration]string{0: "", time.Millisecond: "", 23 * time.Second: " late=23s"} {
		var l log
		oplog.New(l.write).OnDemoted(ctx, hooks.Demoted{Origin: a, Token: 7, Reason: hooks.LeaseExpired, Err: errRefused, Held: time.Minute, Late: late})
		want = "warn demoted token=7 reason=lease_expired held=1m0s" + want + " error=connection refused"
		if got := l.from(oplog.Trace); !slices.Equal(got, []string{want}) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTheContextOfAnEventReachesTheLogger(t *testing.T) {
	type key struct{}
	var got any
	h := oplog.New(func(ctx context.Context, _ oplog.Level, _ string, _ ...any) { got = ctx.Value(key{}) })
	h.OnElected(context.WithValue(ctx, key{}, "trace id"), hooks.Elected{})
	if got != "trace id" {
		t.Errorf("the logger got the value %v", got)
	}
}

// For "waited" a fast failover read as an outage.
func TestAnElectionTellsWhoLedBefore(t *testing.T) {
	for want, e := range map[string]hooks.Elected{
		"info elected token=7 campaigned=9.581s":                                                        {},
		"info elected token=7 previous=b leaderless=90ms campaigned=9.581s":                             {Previous: "b", Leaderless: 90 * time.Millisecond},
		"info elected token=7 previous=b offered=true leaderless=2ms campaigned=9.581s":                 {Previous: "b", Offered: true, Leaderless: 2 * time.Millisecond},
		"info elected again token=7 ended=session_lost leaderless=1.5s campaigned=9.581s":               {Previous: "a", PreviousReason: hooks.SessionLost, Leaderless: 1500 * time.Millisecond},
		"info elected token=7 previous=b leaderless=5s outage=1m0s failed_attempts=1 campaigned=9.581s": {Previous: "b", Leaderless: 5 * time.Second, At: start.Add(time.Minute)},
	} {
		var l log
		h := oplog.New(l.write)
		if !e.At.IsZero() {
			attempt(h, a, 1, hooks.Failed, 0)
			attempt(h, a, 2, hooks.Granted, time.Minute)
		}
		e.Origin, e.Token, e.Campaigned = a, 7, 9581*time.Millisecond
		h.OnElected(ctx, e)
		if got := l.from(oplog.Info); got[len(got)-1] != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestALostTermIsOneLine(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	h.OnElected(ctx, hooks.Elected{Origin: a})
	h.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpHeartbeat, Err: errRefused})
	h.OnDemoted(ctx, hooks.Demoted{Origin: a, Reason: hooks.SessionLost, Err: errRefused})
	h.OnLeaderChanged(ctx, hooks.LeaderChanged{Origin: a, Previous: "a"})
	check(t, &l, "info elected token=0 campaigned=0s", "warn demoted token=0 reason=session_lost held=0s error=connection refused")
}

// Its server restarts, say. That it answers again is told if that took long.
func TestAttemptsThatFailAfterALostTermAreThatFault(t *testing.T) {
	const lost = "warn demoted token=0 reason=session_lost held=0s error=connection refused"
	for seconds, more := range map[int][]string{
		5:  nil,
		15: {"info attempts succeed again after=14s failed_attempts=15"},
	} {
		var l log
		h := oplog.New(l.write)
		h.OnDemoted(ctx, hooks.Demoted{Origin: a, Reason: hooks.SessionLost, Err: errRefused, At: start})
		for i := range seconds {
			attempt(h, a, i+1, hooks.Failed, time.Duration(i)*time.Second)
		}
		attempt(h, a, seconds, hooks.Busy, time.Duration(seconds-1)*time.Second)
		check(t, &l, append([]string{lost}, more...)...)
		l.lines = nil
		attempt(h, a, 1, hooks.Failed, time.Hour) // another fault
		check(t, &l, wentAway)
	}
}

type stateError string

func (e stateError) Error() string    { return "the server says " + string(e) }
func (e stateError) SQLState() string { return string(e) }

// An administrator has ended the session, say, and has changed the password, too.
func TestAServerThatRefusesAFormerLeaderIsAnotherFault(t *testing.T) {
	for state, told := range map[stateError]bool{"28P01": true, "28000": true, "3D000": true, "42501": true, "53300": true, "57014": true, "57P03": false, "57P01": false, "08006": false} {
		var l log
		h := oplog.New(l.write)
		h.OnDemoted(ctx, hooks.Demoted{Origin: a, Reason: hooks.SessionLost, Err: errRefused, At: start})
		want := []string{"warn demoted token=0 reason=session_lost held=0s error=connection refused"}
		for range 3 {
			h.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpCampaign, Err: fmt.Errorf("elector: %w", state), At: start})
			h.OnCampaign(ctx, hooks.Campaign{Origin: a, Outcome: hooks.Failed, At: start})
		}
		if told {
			want = append(want, fmt.Sprintf("warn attempt failed op=campaign error=elector: the server says %s failed_attempts=1", string(state)))
		}
		check(t, &l, want...)
	}
}

// The server was stopped, say, and came back without the database.
func TestARefusalIsToldOnceWhateverTheOutageBeganWith(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	for _, err := range []error{errRefused, stateError("57P01"), stateError("3D000"), stateError("57P03"), stateError("28P01"), stateError("3D000")} {
		h.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpCampaign, Err: err, At: start})
		h.OnCampaign(ctx, hooks.Campaign{Origin: a, Outcome: hooks.Failed, At: start})
	}
	check(t, &l, "warn attempt failed op=campaign error=connection refused failed_attempts=1", "warn attempt failed op=campaign error=the server says 3D000 failed_attempts=3")
}

func TestACandidateThatIsHealthyAgainIsToldOnce(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	const ill = "warn candidate unhealthy op=health error=connection refused"
	for range 2 {
		for range 3 { // as of three calls of TryCampaign
			h.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpHealth, Err: fmt.Errorf("%w", errRefused)})
			h.OnCampaign(ctx, hooks.Campaign{Origin: a, Outcome: hooks.Busy})
		}
		h.OnCampaign(ctx, hooks.Campaign{Origin: a, Outcome: hooks.Busy, WasUnhealthy: time.Minute})
		h.OnCampaign(ctx, hooks.Campaign{Origin: a, Outcome: hooks.Busy})
	}
	check(t, &l, ill, "info candidate healthy again after=1m0s", ill, "info candidate healthy again after=1m0s")
}

// OnElected panics, which ends the term, or the health check fails.
func TestAFailureThatEndsTheTermIsOneLineWithAnError(t *testing.T) {
	ending := fmt.Errorf("lead failed: %w", errPanicked)
	for _, op := range []hooks.Op{hooks.OpHook, hooks.OpHealth} {
		for _, failureFirst := range []bool{true, false} {
			var l log
			h := oplog.New(l.write)
			for _, failure := range []bool{failureFirst, !failureFirst} {
				if failure {
					h.OnError(ctx, hooks.Failure{Origin: a, Op: op, Err: errPanicked})
				} else {
					h.OnDemoted(ctx, hooks.Demoted{Origin: a, Reason: hooks.LeadFailed, Err: ending})
				}
			}
			faults := 0
			for _, line := range l.lines {
				if line.level > oplog.Info {
					faults++
				} else if line.level == oplog.Info && slices.Contains(line.fields, any("error")) {
					t.Errorf("an error on an info line: %v", line)
				}
			}
			if faults != 1 {
				t.Errorf("%d lines for one fault: %q", faults, l.from(oplog.Trace))
			}
		}
	}
}

func TestAStackIsAFieldOfItsOwn(t *testing.T) {
	var l log
	oplog.New(l.write).OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpHook, Err: errPanicked})
	check(t, &l, "error hook panicked op=hook error=a hook panicked: oops stack=goroutine 1")
}

// It is reported again when the session ends, which is the same fault. The time counts from the end of
// the term's context.
func TestWorkThatReturnsAfterAllIsToldOnceBeforeTheEndOfItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		h, returned, since := oplog.New(l.write), make(chan struct{}), time.Now()
		time.Sleep(2 * time.Second)
		for range 2 {
			h.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpWork, Err: errRefused, At: time.Now(), Since: since, Returned: returned})
		}
		time.Sleep(time.Second)
		close(returned)
		h.OnDemoted(ctx, hooks.Demoted{Origin: a, Reason: hooks.Resigned, LeadReturned: true, Held: time.Hour})
		synctest.Wait()
		const overran = "error work outlived its term op=work error=connection refused"
		check(t, &l, overran, "info work returned after all op=work after=3s", "info lead returned: Run ends token=0 held=1h0m0s")
	})
}

func TestALeaderThatIsReplacedByItsSameIdIsElectedAgain(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	for _, change := range [][2]string{{"", "b"}, {"b", "b"}, {"b", "c"}, {"c", ""}, {"a", "b"}, {"", ""}} {
		h.OnLeaderChanged(ctx, hooks.LeaderChanged{Origin: a, Previous: change[0], Current: change[1], PID: 1})
	}
	h.OnLeaderChanged(ctx, hooks.LeaderChanged{Origin: a, Previous: "c"})
	check(t, &l, "info leader changed leader=b pid=1", "info leader elected again leader=b pid=1", "info leader changed previous=b leader=c pid=1",
		"info leader changed previous=c pid=1", "info leader changed leader=b pid=1", "info leader changed pid=1", "info no leader known previous=c")
}
