//go:build linux

// Command recording records a terminal session of pgelector run, watch and status on a
// throw-away server, and draws it as a picture with the programs' real output and timing:
//
//	go run ./recording ../docs/pictures/session.svg
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pgelector/pgelector/e2e/pgcluster"
	"github.com/pgelector/pgelector/e2e/producer"
	"github.com/pgelector/pgelector/e2e/pty"
)

func main() { producer.Main("recording", "FILE.svg", record) }

func record(ctx context.Context, file string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cluster, err := pgcluster.Start(ctx)
	if err != nil {
		return err
	}
	defer cluster.Stop()
	bin, err := os.MkdirTemp("", "pgelector-recording-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(bin, "pgelector"), "./cmd/pgelector")
	build.Dir = ".." // another module
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	worker := "#!/bin/sh\necho \"billing-worker: working, with token $PGELECTOR_TOKEN\"\nexec sleep 600\n"
	if err := os.WriteFile(filepath.Join(bin, "billing-worker"), []byte(worker), 0o755); err != nil {
		return err
	}
	s := &studio{ctx: ctx, began: time.Now(), env: append(os.Environ(), "DATABASE_URL="+cluster.DSN(),
		"PATH="+bin+":"+os.Getenv("PATH"), "TERM=xterm", "NO_COLOR=1", "HISTFILE=")}
	defer s.close()
	if err := s.play(); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(s.svg()), 0o644)
}

// play runs the session.
func (s *studio) play() error {
	run := func(host string) string {
		return "pgelector run --election billing --candidate " + host + " --log-level off -- billing-worker"
	}
	one, two := s.pane("web-1"), s.pane("web-2")
	watch, operator := s.pane("operator"), s.pane("operator")
	for _, step := range []func() error{
		watch.types("pgelector watch billing", "nobody leads"),
		one.types(run("web-1"), "with token"),
		watch.sees("web-1 leads"),
		two.types(run("web-2"), ""),
		operator.types("pgelector status billing 2>/dev/null", "leads"),
		s.rest,
		operator.kills(one, "   # pgelector on web-1: its worker dies with it"),
		one.sees("Killed"),
		two.sees("with token"),
		watch.sees("web-2 leads"),
		operator.types("pgelector status billing 2>/dev/null", "web-2"),
		s.rest,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

const (
	columns = 112
	rows    = 40
	pause   = 700 * time.Millisecond // between two commands, so that the viewer can follow
)

// studio is the panes and the start time.
type studio struct {
	ctx   context.Context
	began time.Time
	env   []string
	panes []*pane
}

// pane is a shell on a terminal.
type pane struct {
	studio *studio
	host   string
	shell  *exec.Cmd
	keys   *os.File
	err    error

	mu     sync.Mutex
	chunks []chunk
	read   int // the part of the text that sees has matched
}

// chunk is output and its time.
type chunk struct {
	at   time.Duration
	text string
}

// pane opens a pane.
func (s *studio) pane(host string) *pane {
	p := &pane{studio: s, host: host}
	s.panes = append(s.panes, p)
	p.shell = exec.CommandContext(s.ctx, "bash", "--noprofile", "--norc", "--noediting")
	p.shell.Env = append(s.env, "PS1="+host+" $ ")
	if p.keys, p.err = pty.Start(p.shell, columns, rows); p.err == nil {
		go p.listen()
	}
	return p
}

func (p *pane) listen() {
	buffer := make([]byte, 4096)
	for {
		n, err := p.keys.Read(buffer)
		p.mu.Lock()
		p.chunks = append(p.chunks, chunk{time.Since(p.studio.began), string(buffer[:n])})
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *pane) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	for _, c := range p.chunks {
		b.WriteString(c.text)
	}
	return b.String()
}

// types types a line after the prompt, and waits for the answer.
func (p *pane) types(line, answer string) func() error {
	return func() error {
		if p.err != nil {
			return p.err
		}
		if err := p.sees(p.host + " $ ")(); err != nil {
			return err
		}
		if err := p.studio.rest(); err != nil {
			return err
		}
		if _, err := p.keys.WriteString(line + "\n"); err != nil {
			return err
		}
		if err := p.sees(line)(); err != nil {
			return err
		}
		return p.sees(answer)()
	}
}

// kills types a command that kills the program in another pane.
func (p *pane) kills(other *pane, remark string) func() error {
	return func() error {
		shell := other.shell.Process.Pid
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", shell))
		if err != nil {
			return err
		}
		fields := strings.Fields(string(children))
		if len(fields) != 1 {
			return fmt.Errorf("%s runs %q, want one process", other.host, fields)
		}
		return p.types("kill -9 "+fields[0]+remark, "")()
	}
}

// sees waits for a text after the previous match.
func (p *pane) sees(text string) func() error {
	return func() error {
		for {
			all := p.text()
			if i := strings.Index(all[p.read:], text); i >= 0 {
				p.read += i + len(text)
				return nil
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-p.studio.ctx.Done():
				return fmt.Errorf("%s: no %q in %q: %w", p.host, text, all, p.studio.ctx.Err())
			}
		}
	}
}

func (s *studio) rest() error {
	select {
	case <-time.After(pause):
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// close ends the shells and the programs on their terminals.
func (s *studio) close() {
	for _, p := range s.panes {
		if p.err == nil {
			_ = p.keys.Close()
			_ = p.shell.Process.Kill()
			_ = p.shell.Wait()
		}
	}
}
