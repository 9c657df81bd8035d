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
)

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

// keys renders each line as the adapters' documentation does.
func (l *log) keys() []string {
	var out []string
	for _, line := range l.lines {
		var keys []string
		for i := 0; i < len(line.fields); i += 2 {
			keys = append(keys, line.fields[i].(string))
		}
		out = append(out, levelNames[line.level]+"|"+line.message+"|"+strings.Join(keys[3:], " "))
	}
	slices.Sort(out)
	return slices.Compact(out)
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
	attempt(h, a, 4, hooks.Granted, 2)
	for range 2 { // it says once that it does not listen
		h.OnElected(ctx, hooks.Elected{Origin: a, NotListening: errRefused})
	}
	h.OnHeartbeat(ctx, hooks.Heartbeat{Origin: a})
	h.OnLeaderChanged(ctx, hooks.LeaderChanged{Origin: a, Current: "a"})
	h.OnLeaderChanged(ctx, hooks.LeaderChanged{Origin: a, Current: "b"})
	for _, reason := range hooks.Reasons() {
		h.OnDemoted(ctx, hooks.Demoted{Origin: a, Reason: reason})
	}
	for _, op := range []hooks.Op{
		hooks.OpHeartbeat, hooks.OpRelease, hooks.OpWork, hooks.OpLead, hooks.OpHook, hooks.OpSetting, hooks.OpHealth, hooks.OpRequest, hooks.OpCall, hooks.OpToken,
	} {
		h.OnError(ctx, hooks.Failure{Origin: a, Op: op})
	}
	h.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpCampaign, Permanent: true})
	h.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpSetting, Permanent: true})
	returned := make(chan struct{})
	h.OnError(ctx, hooks.Failure{Origin: a, Op: hooks.OpHook, Returned: returned})
	close(returned)
}

func TestTheAdaptersDocumentExactlyTheLinesThatAreWritten(t *testing.T) {
	var l log
	h := oplog.New(l.write)
	everything(t, h)
	h.OnError(ctx, hooks.Failure{Op: hooks.OpCampaign})
	row := regexp.MustCompile(`(?m)^//\t(\w+) {2,}(\S+(?: \S+)*) {2,}(\S+(?: \S+)*)(?: {2,}.*)?$`)
	for _, file := range []string{"../../slog/slog.go", "../../hclog/hclog.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var documented []string
		for _, m := range row.FindAllStringSubmatch(string(source), -1) {
			documented = append(documented, strings.Join(m[1:4], "|"))
		}
		slices.Sort(documented)
		if want := l.keys(); !slices.Equal(documented, want) {
			t.Errorf("%s documents\n%s\nbut these are written\n%s",
				file, strings.Join(documented, "\n"), strings.Join(want, "\n"))
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
	if got, want := l.from(oplog.Info), []string{"info became deputy attempt=2", "info became deputy attempt=6"}; !slices.Equal(got, want) {
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
		hooks.Resigned:     "info resigned token=7 reason=resigned held=1m0s",
		hooks.Requested:    "info resigned token=7 reason=requested held=1m0s error=connection refused",
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
