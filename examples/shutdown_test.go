//go:build unix

package examples_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// process is the program in shutdown/ and its output.
type process struct {
	*exec.Cmd
	lines chan string // closed when the process ends
}

func launch(t *testing.T, program, driver, dsn string) process {
	t.Helper()
	p := process{exec.Command(program), make(chan string, 100)}
	p.Env = append(os.Environ(), "DRIVER="+driver, "DATABASE_URL="+dsn)
	out, write := io.Pipe()
	p.Stdout, p.Stderr = write, write
	check(t, p.Start())
	go func() {
		defer close(p.lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			p.lines <- in.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // after a failed test
		_ = p.Wait()
		_ = write.Close()
		for range p.lines {
		}
	})
	return p
}

// expect waits for a line, which must have a prefix.
func (p process) expect(t *testing.T, prefix string) {
	t.Helper()
	if line := receive(t, prefix, p.lines); !strings.HasPrefix(line, prefix) {
		t.Fatalf("got the line %q, want %q", line, prefix)
	}
}

func TestOnSIGTERMTheProgramExitsWithStatus0AndAnotherLeads(t *testing.T) {
	program := filepath.Join(t.TempDir(), "shutdown")
	if out, err := exec.Command("go", "build", "-o", program, "./shutdown").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, driver := range []string{"postgres", "pgx"} {
		t.Run(driver, func(t *testing.T) {
			dsn := database(t)
			first := launch(t, program, driver, dsn)
			first.expect(t, "leading")
			second := launch(t, program, driver, dsn)
			check(t, first.Process.Signal(syscall.SIGTERM))
			first.expect(t, "stopped")
			if err := first.Wait(); err != nil {
				t.Errorf("the first ended with %v", err)
			}
			second.expect(t, "leading")
			check(t, second.Process.Signal(syscall.SIGTERM))
			second.expect(t, "stopped")
			if err := second.Wait(); err != nil {
				t.Errorf("the second ended with %v", err)
			}
		})
	}
}
