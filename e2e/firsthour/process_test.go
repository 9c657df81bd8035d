//go:build unix

package firsthour_test

import (
	"bytes"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// process is a running program and what it has said.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}

	mu   sync.Mutex
	text bytes.Buffer
}

// Write keeps what the program says.
func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(text)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// start starts a line of bash in the module, in its own process group, and ends it with the test.
func (m module) start(t *testing.T, line string) *process {
	t.Helper()
	p := &process{cmd: exec.Command("bash", "-c", line), ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = m.dir, environment
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	check(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // also until all its children have closed their output
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.ended
		if t.Failed() {
			t.Logf("%s\nsaid:\n%s", line, p.said())
		}
	})
	return p
}

// says waits until a line matches the pattern, and returns its groups.
func (p *process) says(t *testing.T, pattern string) []string {
	t.Helper()
	matcher := regexp.MustCompile("(?m)" + pattern)
	var match []string
	eventually(t, "says "+pattern, func() bool {
		ended := p.hasEnded()
		match = matcher.FindStringSubmatch(p.said())
		if match == nil && ended {
			t.Fatalf("ended without %s", pattern)
		}
		return match != nil
	})
	return match[1:]
}

// token waits until the README's program leads, and returns its token.
func (p *process) token(t *testing.T) int64 {
	t.Helper()
	token, err := strconv.ParseInt(p.says(t, `leading, with token (\d+)$`)[0], 10, 64)
	check(t, err)
	return token
}

// ends waits for the end and compares the exit status.
func (p *process) ends(t *testing.T, status int) {
	t.Helper()
	eventually(t, "it ends", p.hasEnded)
	if got := p.cmd.ProcessState.ExitCode(); got != status {
		t.Errorf("exit status %d, want %d\n%s", got, status, p.said())
	}
}

// shape returns a pattern for lines like one that a page shows: ids, numbers and times vary, and … is anything.
func shape(line string) string {
	pattern := regexp.QuoteMeta(strings.TrimSpace(line))
	for _, vary := range [][2]string{
		{`web-1-\d+-[0-9a-f]+`, `\S+-\d+-[0-9a-f]+`},
		{`\d+\\\.\d+m?s`, `[\d.]+(?:µs|ms|s)`},
		{`=\d+`, `=\d+`},
		{` \d+`, ` \d+`},
		{`…`, `.*`},
	} {
		pattern = regexp.MustCompile(vary[0]).ReplaceAllLiteralString(pattern, vary[1])
	}
	return strings.ReplaceAll(pattern, `\-`, `-`)
}
