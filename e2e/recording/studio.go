//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/pgelector/pgelector/e2e/pty"
)

const (
	columns = 112
	rows    = 40
	pause   = 700 * time.Millisecond // for the eye, between two things that are typed
)

// studio is the panes, and when it all began.
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
	read   int // how much of the text sees has found
}

// chunk is what was written at a time.
type chunk struct {
	at   time.Duration
	text string
}

// pane opens one more.
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

// types types a line, once the prompt is there, and waits for the answer.
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

// kills types the command that kills what another pane's shell runs.
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

// sees waits for a text behind the one that it saw last.
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

// close ends the shells, and with their terminals what runs in them.
func (s *studio) close() {
	for _, p := range s.panes {
		if p.err == nil {
			_ = p.keys.Close()
			_ = p.shell.Process.Kill()
			_ = p.shell.Wait()
		}
	}
}
