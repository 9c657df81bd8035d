package must

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/pgelector/pgelector/e2e/sandbox"
)

// A Process is a program that runs until the test ends, or it does.
type Process struct {
	*exec.Cmd
	Ended chan struct{} // closed when it has ended

	orders io.Writer
	mu     sync.Mutex
	said   bytes.Buffer
}

// Start starts a program, and keeps what it writes: errors, too, unless cmd sends them elsewhere. The end of
// the test kills it.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, Ended: make(chan struct{})}
	cmd.Stdout = p
	if cmd.Stderr == nil {
		cmd.Stderr = p
	}
	var err error
	p.orders, err = cmd.StdinPipe()
	Check(t, err)
	Check(t, cmd.Start())
	go func() {
		_ = cmd.Wait()
		close(p.Ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.Ended
		if t.Failed() {
			t.Logf("%v wrote:\n%s", cmd.Args, &p.said)
		}
	})
	return p
}

// Write keeps what the program writes.
func (p *Process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(text)
}

// Lines returns the whole lines so far.
func (p *Process) Lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := strings.Split(p.said.String(), "\n")
	return all[:len(all)-1]
}

// Order writes a line to the program's standard input.
func (p *Process) Order(t testing.TB, words ...any) {
	t.Helper()
	_, err := fmt.Fprintln(p.orders, words...)
	Check(t, err)
}

// Signal sends a signal, as sandbox.Signal does.
func (p *Process) Signal(t testing.TB, sig os.Signal) {
	t.Helper()
	Check(t, sandbox.Signal(p.Process, sig))
}
