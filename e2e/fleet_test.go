//go:build unix

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/sandbox"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

// A fleet is the candidates of one election, each in its own process.
type fleet struct {
	s        *server
	election string
	members  map[string]*member
	fates
	next    func() settings
	started int
	log     history.Records[entry]
}

// fates is what a test did to candidates, and who they are.
type fates struct {
	killed  []string
	excused []string // the test terminated their backends
	untold  []string // the test freed their locks: they know it when they look
	pgx     []string // they are told when their session ends
}

// A member is a candidate's process.
type member struct {
	*exec.Cmd
	id     string
	stdin  io.WriteCloser
	stderr bytes.Buffer
	gone   chan struct{} // closed once it has ended and all its entries are read
	err    error         // how it ended
}

// shortLeases is for a fleet of which a test freezes a leader.
func shortLeases(_ int, s *settings) { s.Lease = short }

// launch starts n processes. At the end of the test it shuts them down and judges their history.
func (s *server) launch(t *testing.T, d drivers, n int, change ...func(int, *settings)) *fleet {
	t.Helper()
	f := &fleet{s: s, election: s.election(t), members: map[string]*member{}}
	t.Cleanup(func() {
		f.shutDown(t)
		for _, violation := range judgeEach(f.entries(), f.fates) {
			t.Error(violation)
		}
		if t.Failed() {
			f.print(t)
		}
	})
	f.next = func() settings {
		i := f.started
		f.started++
		s := settings{Driver: d.name(i), DSN: s.DSN(), Election: f.election, ID: fmt.Sprintf("%s-%d", d.name(i), i),
			Lease: lease, Heartbeat: heartbeat, Retry: 2 * retry}
		for _, fn := range change {
			fn(i, &s)
		}
		return s
	}
	for range n {
		f.start(t, f.next())
	}
	for id := range f.members {
		f.wait(t, id+" is ready", func(e entry) bool { return e.Kind == ready && e.ID == id })
	}
	return f
}

// join starts one more process with the settings of the fleet, and waits until it is ready.
func (f *fleet) join(t *testing.T) {
	t.Helper()
	s := f.next()
	f.start(t, s)
	f.wait(t, s.ID+" is ready", func(e entry) bool { return e.Kind == ready && e.ID == s.ID })
}

func (f *fleet) start(t *testing.T, s settings) {
	t.Helper()
	text, err := json.Marshal(s)
	check(t, err)
	m := &member{Cmd: exec.Command(os.Args[0]), id: s.ID, gone: make(chan struct{})}
	m.Env = append(os.Environ(), candidateVariable+"="+string(text))
	m.Stderr = &m.stderr
	m.stdin, err = m.StdinPipe()
	check(t, err)
	stdout, err := m.StdoutPipe()
	check(t, err)
	check(t, m.Start())
	f.members[s.ID] = m
	if s.Driver == pgx.name(0) {
		f.pgx = append(f.pgx, s.ID)
	}
	go func() {
		defer close(m.gone)
		_ = f.log.Collect(stdout) // a kill may truncate the last line
		m.err = m.Wait()
	}()
}

func (f *fleet) entries() []entry { return slices.Clone(f.log.Since(0)) }

// wait returns the first entry that matches, past or future.
func (f *fleet) wait(t *testing.T, what string, match func(entry) bool) entry {
	t.Helper()
	ctx, enough := context.WithTimeout(context.Background(), patience)
	defer enough()
	if f.s.pooler != nil {
		ended := f.s.pooler.Ended()
		go func() {
			defer enough()
			select {
			case <-ended:
			case <-ctx.Done():
			}
		}()
	}
	for seen := 0; ; {
		fresh, err := f.log.Await(ctx, seen)
		if err != nil && context.Cause(ctx) == context.Canceled {
			t.Fatalf("while waiting: %s: %s", what, f.s.pooler.Fate())
		}
		if err != nil {
			t.Fatalf("not within %v: %s", patience, what)
		}
		if i := slices.IndexFunc(fresh, match); i >= 0 {
			return fresh[i]
		}
		seen += len(fresh)
	}
}

// leader waits for an election with a token above after, and returns the newest.
func (f *fleet) leader(t *testing.T, after int64) entry {
	t.Helper()
	newest := f.wait(t, fmt.Sprintf("an election after token %d", after), func(e entry) bool { return e.Kind == elected && e.Token > after })
	for _, e := range f.entries() {
		if e.Kind == elected && e.Token > newest.Token {
			newest = e
		}
	}
	return newest
}

// demotion waits until the term with the token has ended.
func (f *fleet) demotion(t *testing.T, token int64) entry {
	t.Helper()
	return f.wait(t, fmt.Sprintf("the end of token %d", token), func(e entry) bool { return e.Kind == demoted && e.Token == token })
}

// terminateLeader terminates the leader's backend, as soon as there is one.
func (f *fleet) terminateLeader(t *testing.T) {
	t.Helper()
	eventually(t, "a leader's backend is terminated", func() bool {
		pids := f.s.holders(t, elector.KeyFromName(f.election))
		if len(pids) == 0 {
			return false
		}
		f.excused = append(f.excused, list[string](t, f.s.admin, "SELECT application_name FROM pg_stat_activity WHERE pid = $1", pids[0])...)
		return one[bool](t, f.s.admin, "SELECT pg_terminate_backend($1)", pids[0])
	})
}

func (f *fleet) signal(t *testing.T, id string, signal syscall.Signal) {
	t.Helper()
	check(t, sandbox.Signal(f.members[id].Process, signal))
}

func (f *fleet) command(t *testing.T, id, command string) {
	t.Helper()
	_, err := io.WriteString(f.members[id].stdin, command+"\n")
	check(t, err)
}

// kill ends a process with SIGKILL and waits until all its entries are read.
func (f *fleet) kill(t *testing.T, id string) {
	t.Helper()
	f.signal(t, id, syscall.SIGKILL)
	f.isGone(t, id)
}

// isGone waits until a killed process has ended and all its entries are read.
func (f *fleet) isGone(t *testing.T, id string) {
	t.Helper()
	m := f.members[id]
	if m == nil {
		t.Fatalf("%s was gone before", id)
	}
	closed(t, id+" is killed", m.gone)
	delete(f.members, id)
	f.killed = append(f.killed, id)
}

// quit ends a process with SIGTERM and checks that it exits cleanly.
func (f *fleet) quit(t *testing.T, id string) {
	t.Helper()
	m := f.members[id]
	delete(f.members, id)
	m.quit(t)
}

func (m *member) quit(t *testing.T) {
	t.Helper()
	_ = m.Process.Signal(syscall.SIGTERM)
	select {
	case <-m.gone:
	case <-time.After(patience):
		_ = m.Process.Kill()
		<-m.gone
	}
	if m.err != nil {
		t.Errorf("%s ended with %v:\n%s", m.id, m.err, m.stderr.String())
	}
}

func (f *fleet) shutDown(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	for _, m := range f.members {
		_ = m.Process.Signal(syscall.SIGCONT)
		all.Go(func() { m.quit(t) })
	}
	all.Wait()
}

// print logs the end of the history, without the many heartbeats and beliefs.
func (f *fleet) print(t *testing.T) {
	t.Helper()
	const most = 200 // a process may lead a thousand elections
	shown := slices.DeleteFunc(f.entries(), func(e entry) bool { return e.Kind == renewed || e.Kind == believed })
	for _, e := range shown[max(0, len(shown)-most):] {
		t.Logf("%+v", e)
	}
}

// entry is one line of a candidate's history. Times of terms are of the wall clock, times
// of samples are of the monotonic clock; both are in nanoseconds.
type entry struct {
	ID       string
	Kind     kind
	Token    int64  `json:",omitempty"`
	From, To int64  `json:",omitempty"`
	Believes bool   `json:",omitempty"`
	Text     string `json:",omitempty"`
	Election string `json:",omitempty"` // if the session has many elections
}

type kind string

const (
	ready    kind = "ready"    // it handles SIGTERM
	elected  kind = "elected"  // From: when
	demoted  kind = "demoted"  // From: when; Text: the reason
	renewed  kind = "renewed"  // From: when a heartbeat was answered; To: the deadline
	failed   kind = "failed"   // From: when; Text: the error
	believed kind = "believed" // From, To: it certainly believed to lead
	blinked  kind = "blinked"  // it was not running between the samples From and To; Believes: the result of the second
	violated kind = "violated" // Text: how the contract of hooks was broken
)

// judge has package history check the history of an election: whether terms overlap by the
// candidates' own belief, whether tokens rise, and whether each candidate that was not killed was
// elected and demoted in turn.
//
// If the server ended a leader's session, the leader may believe to lead until it is told
// (history.Told), while the next leader already leads; the tokens tell the two apart. judge
// allows that to the excused candidates, for terms that ended with hooks.SessionLost.
func judge(entries []entry, of fates) (violations []string) {
	var calls, elections, beliefs, began []history.Event
	for _, id := range of.killed {
		calls = append(calls, history.Event{Process: id, Kind: history.Killed})
	}
	for _, id := range of.pgx {
		beliefs = append(beliefs, history.Event{Process: id, Kind: history.Hello, Driver: history.Pgx})
	}
	for _, id := range of.untold {
		beliefs = append(beliefs, history.Event{Process: id, Kind: history.Held, Took: math.MaxInt64})
	}
	for i, e := range entries {
		as := func(kind history.Kind, at int64) history.Event {
			return history.Event{Process: e.ID, Seq: i + 1, Kind: kind, At: history.Time(at), Token: e.Token, Leading: true}
		}
		switch e.Kind {
		case elected:
			calls, elections = append(calls, as(history.Elected, e.From)), append(elections, as(history.Began, e.From))
		case demoted:
			calls = append(calls, as(history.Demoted, e.From))
			if e.Text == string(hooks.SessionLost) && slices.Contains(slices.Concat(of.excused, of.untold), e.ID) {
				beliefs = append(beliefs, history.Event{Process: e.ID, Token: e.Token, Kind: history.Severed, Took: math.MaxInt64})
			}
		case believed:
			beliefs = append(beliefs, as(history.Sample, e.From), as(history.Sample, e.To))
		case blinked:
			beliefs = append(beliefs, history.Event{Process: e.ID, Kind: history.Sample, At: history.Time(e.To), Stood: time.Duration(e.To - e.From)})
		case violated:
			violations = append(violations, e.ID+" "+e.Text)
		}
	}
	for _, t := range history.Terms(beliefs) {
		began = append(began, history.Event{Process: t.Process, Kind: history.Began, At: t.Begin, Token: t.Token})
	}
	proofs := []history.Proof{history.HooksAlternate(calls)}
	if len(elections) > 0 {
		proofs = append(proofs, history.TokensRise(elections))
	}
	if len(began) > 0 {
		proofs = append(proofs, history.OneLeader(beliefs, 0), history.TokensRise(began))
	}
	for _, p := range proofs {
		violations = append(violations, p.Violations...)
	}
	return violations
}

// judgeEach judges each election of a history.
func judgeEach(entries []entry, of fates) (violations []string) {
	each := map[string][]entry{}
	for _, e := range entries {
		each[e.Election] = append(each[e.Election], e)
	}
	for election, its := range each {
		for _, wrong := range judge(its, of) {
			violations = append(violations, election+" "+wrong)
		}
	}
	return violations
}

func TestJudgeReportsBrokenGuarantees(t *testing.T) {
	ms := int64(time.Millisecond)
	both := fates{killed: []string{"a", "b"}}
	good := []entry{
		{ID: "a", Kind: elected, Token: 1, From: 10 * ms}, {ID: "a", Kind: believed, Token: 1, From: 11 * ms, To: 15 * ms},
		{ID: "a", Kind: believed, Token: 1, From: 11 * ms, To: 20 * ms}, {ID: "a", Kind: demoted, Token: 1, From: 21 * ms},
		{ID: "b", Kind: elected, Token: 2, From: 30 * ms}, {ID: "b", Kind: believed, Token: 2, From: 31 * ms, To: 40 * ms},
		{ID: "a", Kind: elected, Token: 3, From: 50 * ms}, {ID: "a", Kind: believed, Token: 3, From: 51 * ms, To: 2000 * ms},
	}
	if violations := judge(good, both); len(violations) > 0 {
		t.Errorf("a good history: %q", violations)
	}
	if violations := judge(good, fates{killed: []string{"a"}}); len(violations) != 1 {
		t.Errorf("a candidate that was not killed, nor demoted: %q", violations)
	}
	for _, test := range []struct {
		of    fates
		until int64 // b believes
		stood int64 // its process, before
		wrong int
	}{
		{fates{}, 55, 0, 1},
		{fates{excused: []string{"b"}}, 551, 0, 0},
		{fates{excused: []string{"b"}}, 552, 0, 1},
		{fates{excused: []string{"b"}, pgx: []string{"b"}}, 151, 0, 0},
		{fates{excused: []string{"b"}, pgx: []string{"b"}}, 152, 0, 1},
		{fates{excused: []string{"b"}, pgx: []string{"b"}}, 251, 100, 0},
		{fates{untold: []string{"b"}, pgx: []string{"b"}}, 1500, 0, 0},
	} {
		test.of.killed = both.killed
		until := test.until * ms
		ended := append(slices.Clone(good), entry{ID: "b", Kind: demoted, Token: 2, From: until, Text: string(hooks.SessionLost)},
			entry{ID: "b", Kind: believed, Token: 2, From: 31 * ms, To: until}, entry{ID: "b", Kind: blinked, From: until - test.stood*ms, To: until})
		if violations := judge(ended, test.of); len(violations) != test.wrong {
			t.Errorf("a session that was lost while its candidate led until %d, %+v: %q", test.until, test.of, violations)
		}
	}
	for name, bad := range map[string]entry{
		"a belief within another's":     {ID: "b", Kind: believed, Token: 2, From: 18 * ms, To: 19 * ms},
		"a belief with a lesser token":  {ID: "c", Kind: believed, Token: 2, From: 2070 * ms, To: 2080 * ms},
		"a token that falls":            {ID: "c", Kind: elected, Token: 2, From: 2070 * ms},
		"elected twice":                 {ID: "a", Kind: elected, Token: 4, From: 2070 * ms},
		"demoted from another's term":   {ID: "a", Kind: demoted, Token: 2, From: 2070 * ms},
		"a broken contract of the hook": {ID: "a", Kind: violated, Text: "was called twice"},
	} {
		if len(judge(append(slices.Clone(good), bad), fates{killed: []string{"a", "b", "c"}})) == 0 {
			t.Errorf("%s: no violation reported", name)
		}
	}
}

// A sampler calls IsLeader again and again and records how long the candidate believed to
// lead. It reads the monotonic clock, which all processes of the machine share, before and
// after each call. A belief counts from after the first true result until before the last
// call with a true result, so two overlapping beliefs certainly overlapped.
type sampler struct {
	e      *elector.Elector
	record func(entry)
	spin   bool

	belief   entry // the current one; Kind is "" if none
	recorded int64 // when it was last recorded
	last     int64 // when the previous call began
}

const (
	pauseBetweenSamples = 500 * time.Microsecond
	recordEvery         = 50 * time.Millisecond // interval for recording a continuing belief; a kill may lose this much
	blinkAfter          = 20 * time.Millisecond // a longer time between two calls means that the process was not running
)

func newSampler(e *elector.Elector, record func(entry), spin bool) *sampler {
	return &sampler{e: e, record: record, spin: spin, last: monotonic()}
}

func (s *sampler) watch(ctx context.Context) {
	for ctx.Err() == nil {
		s.sample()
		if !s.spin {
			time.Sleep(pauseBetweenSamples)
		}
	}
	s.close()
}

func (s *sampler) sample() {
	before := monotonic()
	believes := s.e.IsLeader()
	after := monotonic()
	if before-s.last > int64(blinkAfter) {
		s.record(entry{Kind: blinked, From: s.last, To: before, Believes: believes})
	}
	s.last = before
	if !believes {
		s.close()
		return
	}
	if term, leading := s.e.Term(); leading && term.Token() != s.belief.Token {
		s.close()
		s.belief = entry{Kind: believed, Token: term.Token(), From: after}
	}
	if s.belief.Kind == "" {
		return // the term has just ended; its token is unknown
	}
	s.belief.To = max(before, s.belief.From)
	if before-s.recorded > int64(recordEvery) {
		s.record(s.belief)
		s.recorded = before
	}
}

// close records the belief that has ended, if any.
func (s *sampler) close() {
	if s.belief.Kind != "" {
		s.record(s.belief)
	}
	s.belief = entry{}
}

// monotonic returns the machine's monotonic clock, in nanoseconds.
func monotonic() int64 { return int64(history.Now()) }
