// Package member runs a member of a group of shards in its own process, which executes this program again. The
// process ends in order with its standard input. It prints an Event for each shard that it begins or ends to lead.
package member

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"os/exec"
	"sync"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/pgelector/pgelector/bench/internal/child"
	"github.com/pgelector/pgelector/bench/internal/systems"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/shard"
)

// Role is the argument of a process that runs a member.
const Role = "shard-member"

// Settings are the first line of its standard input.
type Settings struct {
	DSN, Group, ID string
	Shards         int
}

// An Event says that a member's work on a shard begins, or has returned.
type Event struct {
	Shard  string `json:"s"`
	Begins bool   `json:"b,omitempty"`
	At     int64  `json:"t"` // of systems.Now
}

// Main runs a member until in ends.
func Main(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	var s Settings
	text, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return err
	}
	pool, err := sql.Open("pgx", s.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		stop()
	}()
	var mu sync.Mutex
	encoder := json.NewEncoder(out)
	say := func(name string, begins bool) {
		mu.Lock()
		defer mu.Unlock()
		_ = encoder.Encode(Event{name, begins, systems.Now()})
	}
	err = shard.Run(ctx, pool, s.Group, shard.Numbers(s.Shards), func(ctx context.Context, name string, _ *elector.Term) error {
		say(name, true)
		<-ctx.Done()
		say(name, false)
		return nil
	}, shard.WithSession(elector.WithCandidateID(s.ID)))
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// A Member is a running member.
type Member struct {
	PID int

	in   io.Closer
	cmd  *exec.Cmd
	done chan struct{}

	mu     sync.Mutex
	led    map[string]bool
	begins []string
	last   int64 // when the last event was
}

// Start starts a member.
func Start(s Settings) (*Member, error) {
	cmd, in, out, err := child.Execute(Role)
	if err != nil {
		return nil, err
	}
	m := &Member{PID: cmd.Process.Pid, in: in, cmd: cmd, done: make(chan struct{}), led: map[string]bool{}}
	go m.listen(out)
	return m, json.NewEncoder(in).Encode(s)
}

func (m *Member) listen(out io.Reader) {
	defer close(m.done)
	for events := json.NewDecoder(out); ; {
		var e Event
		if events.Decode(&e) != nil {
			_ = m.cmd.Wait()
			return
		}
		m.mu.Lock()
		m.last = e.At
		if delete(m.led, e.Shard); e.Begins {
			m.led[e.Shard] = true
			m.begins = append(m.begins, e.Shard)
		}
		m.mu.Unlock()
	}
}

// Leads returns how many shards it leads, and when the last change was.
func (m *Member) Leads() (n int, last int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.led), m.last
}

// Begun adds how often the member has begun to lead each shard.
func (m *Member) Begun(counts map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range m.begins {
		counts[name]++
	}
}

// Leave ends the member in order.
func (m *Member) Leave() {
	_ = m.in.Close()
	<-m.done
}

// Kill ends it as kill -9 does.
func (m *Member) Kill() {
	_ = m.cmd.Process.Kill()
	<-m.done
}
