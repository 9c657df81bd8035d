//go:build unix

// Package upgrade_test runs processes of two versions together on one server: today's, and the
// older one that docs/protocol.md compares it with.
package upgrade_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// older is the commit of the older version. It knows no deputies, seats, requests and life locks.
const older = "2e4b912f3ab52013ccdcec5e8eeb65d8c6bc7e56"

var (
	shared   = pgcluster.NewShared()
	programs string // the directory of the built programs
)

func TestMain(m *testing.M) {
	if os.Getenv("PGELECTOR_UPGRADE") == "" {
		fmt.Println("skipped: building the older version takes long; PGELECTOR_UPGRADE=1 or make proof runs it")
		return
	}
	if signal.Ignored(syscall.SIGHUP) { // under nohup the tested programs would ignore it, too
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	var err error
	if programs, err = os.MkdirTemp("", "pgelector-upgrade-"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(shared.Around(m), goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(programs)
		os.Exit(code)
	}))
}

// A version is one build of the command and of testdata/candidate.
type version string

const (
	old   version = "old"
	today version = "today"
)

func (v version) program(name string) string { return filepath.Join(programs, string(v), name) }

// directions are the ways of an upgrade and back.
func directions(t *testing.T, test func(t *testing.T, from, to version)) {
	t.Parallel()
	build(t)
	for _, way := range [][2]version{{old, today}, {today, old}} {
		t.Run(fmt.Sprintf("from %s to %s", way[0], way[1]), func(t *testing.T) {
			t.Parallel()
			test(t, way[0], way[1])
		})
	}
}

// build skips the test if the clone is too shallow to have the older version.
func build(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("git", "-C", repository, "cat-file", "-e", older+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("needs the history of the repository, of which this copy lacks %.7s: %s", older, out)
	}
	if err := buildOnce(); err != nil {
		t.Fatal(err)
	}
}

const repository = "../.."

var buildOnce = sync.OnceValue(func() error {
	copied := filepath.Join(programs, "source")
	copying := fmt.Sprintf("mkdir %s && git -C %s archive %s | tar -x -C %[1]s", copied, repository, older)
	if out, err := exec.Command("sh", "-c", copying).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", copying, err, out)
	}
	if err := buildIn(copied, old, "TransferTo", "ResignTo"); err != nil {
		return err
	}
	return buildIn(repository, today)
})

// buildIn builds the programs of a version from the source in dir. The candidate's source, with
// those words replaced, is laid over it.
func buildIn(dir string, v version, replace ...string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	source, err := os.ReadFile("testdata/candidate/main.go")
	if err != nil {
		return err
	}
	source = []byte(strings.NewReplacer(replace...).Replace(string(source)))
	main, overlay := filepath.Join(programs, string(v)+".go"), filepath.Join(programs, string(v)+".json")
	if err := os.WriteFile(main, source, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: %q}}`, filepath.Join(dir, "cmd/candidate/main.go"), main), 0o644); err != nil {
		return err
	}
	// Without the race detector, which would have the older version's dependencies built once more.
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", filepath.Join(programs, string(v))+"/", "./cmd/pgelector", "./cmd/candidate")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", v, err, out)
	}
	return nil
}

// patience bounds the wait for an expected event.
const patience = 30 * time.Second

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until happened returns true.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// name returns the name of an election that nobody else stands in, also when tests are repeated.
func name(t *testing.T) string { return fmt.Sprint(t.Name(), time.Now().UnixNano()) }

// A process is a program of some version. The end of the test kills it.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	errs   bytes.Buffer // to be read once it has exited
}

func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, exited: make(chan struct{})}
	cmd.Stderr = &p.errs
	check(t, cmd.Start())
	go func() {
		_ = cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("%v said:\n%s", cmd.Args, &p.errs)
		}
	})
	return p
}

func (p *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	check(t, p.cmd.Process.Signal(sig))
}
