//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// A fleet is the candidates of one election, each in its own process.
type fleet struct {
	s        *server
	election string
	members  map[string]*member
	excused  []string // candidates whose backend the test terminated

	mu      sync.Mutex
	history []entry       // in order of arrival
	more    chan struct{} // closed by the next entry
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

// The leases of fleets are short, since tests wait until they run out.
const (
	fleetLease     = 2 * time.Second
	fleetHeartbeat = 200 * time.Millisecond
	fleetRetry     = 200 * time.Millisecond
)

// launch starts n processes. At the end of the test it shuts them down and judges their history.
func (s *server) launch(t *testing.T, d drivers, n int, change ...func(int, *settings)) *fleet {
	t.Helper()
	f := &fleet{s: s, election: s.election(t), members: map[string]*member{}, more: make(chan struct{})}
	t.Cleanup(func() {
		f.shutDown(t)
		for _, violation := range judgeEach(f.entries(), f.excused...) {
			t.Error(violation)
		}
		if t.Failed() {
			f.print(t)
		}
	})
	for i := range n {
		s := settings{Driver: d.name(i), DSN: s.DSN(), Election: f.election, ID: fmt.Sprintf("%s-%d", d.name(i), i),
			Lease: fleetLease, Heartbeat: fleetHeartbeat, Retry: fleetRetry}
		for _, fn := range change {
			fn(i, &s)
		}
		if s.Elections > 0 {
			inSessionScope(t, "a shared session needs it")
		}
		f.start(t, s)
	}
	for id := range f.members {
		f.wait(t, id+" is ready", func(e entry) bool { return e.Kind == ready && e.ID == id })
	}
	return f
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
	go func() {
		defer close(m.gone)
		lines := json.NewDecoder(stdout)
		for {
			var e entry
			if lines.Decode(&e) != nil {
				break // a kill may truncate the last line
			}
			f.add(e)
		}
		m.err = m.Wait()
	}()
}

func (f *fleet) add(e entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history = append(f.history, e)
	close(f.more)
	f.more = make(chan struct{})
}

func (f *fleet) entries() []entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.history)
}

// wait returns the first entry that matches, past or future.
func (f *fleet) wait(t *testing.T, what string, match func(entry) bool) entry {
	t.Helper()
	timeout := time.After(patience)
	for at := 0; ; at++ {
		f.mu.Lock()
		for len(f.history) == at {
			more := f.more
			f.mu.Unlock()
			select {
			case <-more:
			case <-timeout:
				t.Fatalf("not within %v: %s", patience, what)
			}
			f.mu.Lock()
		}
		e := f.history[at]
		f.mu.Unlock()
		if match(e) {
			return e
		}
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
	check(t, f.members[id].Process.Signal(signal))
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
	closed(t, id+" is killed", f.members[id].gone)
	delete(f.members, id)
}

// quit ends a process with SIGTERM and checks that it exits cleanly.
func (f *fleet) quit(t *testing.T, id string) {
	t.Helper()
	m := f.members[id]
	delete(f.members, id)
	_ = m.Process.Signal(syscall.SIGTERM)
	select {
	case <-m.gone:
	case <-time.After(patience):
		_ = m.Process.Kill()
		<-m.gone
		t.Errorf("%s has not shut down within %v", id, patience)
	}
	if m.err != nil {
		t.Errorf("%s ended with %v:\n%s", id, m.err, m.stderr.String())
	}
}

func (f *fleet) shutDown(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	for id, m := range f.members {
		_ = m.Process.Signal(syscall.SIGCONT)
		_ = m.Process.Signal(syscall.SIGTERM)
		all.Go(func() {
			select {
			case <-m.gone:
			case <-time.After(patience):
				_ = m.Process.Kill()
				<-m.gone
			}
			if m.err != nil {
				t.Errorf("%s ended with %v:\n%s", id, m.err, m.stderr.String())
			}
		})
	}
	all.Wait()
}

// print logs the history, without the many heartbeats and beliefs.
func (f *fleet) print(t *testing.T) {
	t.Helper()
	for _, e := range f.entries() {
		if e.Kind != renewed && e.Kind != believed {
			t.Logf("%+v", e)
		}
	}
}
