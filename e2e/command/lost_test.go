//go:build unix

package command_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/sandbox"
)

// stubborn ignores TERM, and so do its child and a daemon in another process group and
// session. All three print their process ids.
const stubborn = `trap '' TERM HUP INT
sh -c 'echo child $$; while :; do sleep 0.05; done' &
setsid sh -c 'echo daemon $$; while :; do sleep 0.05; done' &
sleep 0.1
echo self $$
while :; do sleep 0.05; done`

// unhurried are flags for a term that only the test ends, also on a busy machine.
var unhurried = []string{"--lease", "60s", "--drain", "400ms", "--grace", "200ms"}

// ample are flags for a lease that ends almost three seconds after the grace of the lost term's
// command.
var ample = []string{"--lease", "10s", "--grace", "200ms"}

// family are the processes of stubborn, by what they print.
type family map[string]int

func stubbornFamily(t *testing.T, r *running) family {
	t.Helper()
	f := family{}
	for len(f) < 3 { // in any order
		who, pid, _ := strings.Cut(r.says(t, ""), " ")
		var err error
		f[who], err = strconv.Atoi(pid)
		check(t, err)
	}
	return f
}

// dead fails the test if one of the processes is running.
func (f family) dead(t *testing.T, when string) {
	t.Helper()
	for who, pid := range f {
		if alive(pid) {
			t.Errorf("%s: %s (process %d) lives", when, who, pid)
		}
	}
}

func needsLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux's subreaper")
	}
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("needs setsid")
	}
}

func TestTheLockIsReleasedAfterAllProcessesHaveEnded(t *testing.T) {
	t.Parallel()
	needsLinux(t)
	// The command itself exits, and leaves processes behind that ignore TERM.
	script := `sh -c 'trap "" TERM; echo child $$; while :; do sleep 0.05; done' &
setsid sh -c 'trap "" TERM; echo daemon $$; while :; do sleep 0.05; done' &
sleep 0.2; echo self $$; read line; exit 5`
	r, stdin := held(t, at(shared.Get(t).DSN()), quick(name(t), append([]string{"--grace", "300ms"}, sh(script)...)...)...)
	f := stubbornFamily(t, r)
	granted := make(chan struct{})
	go func() {
		defer close(granted)
		awaitLock(t, shared.Get(t).DSN(), name(t))
	}()
	eventually(t, "another waits for the lock", func() bool {
		return strings.Contains(invoke(t, at(shared.Get(t).DSN()), "status", name(t)).out, "waits, 1.")
	})
	check(t, stdin.Close())
	<-granted
	f.dead(t, "when the lock was granted to the next")
	r.ends(t, 5)
	r.silent(t, patience)
}

func TestACommandThatHandlesTERMGetsItsGracePeriod(t *testing.T) {
	t.Parallel()
	r := run(t, name(t), append([]string{"--lease", "10s"}, sh(`trap 'echo winding down; sleep 0.1; echo done; exit 0' TERM
echo ready; while :; do sleep 0.02; done`)...)...)
	r.says(t, "ready")
	terminate(t, shared.Get(t).DSN(), name(t))
	r.says(t, "winding down")
	r.says(t, "done")
	r.ends(t, exit.Lost)
}

func TestAClosedLogDoesNotEndTheCommand(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	check(t, err)
	check(t, read.Close())
	defer write.Close()
	cmd := exec.Command(built(t), quick(name(t), sh("sleep 0.1; exit 4")...)...)
	cmd.Env, cmd.Stderr = append(os.Environ(), at(shared.Get(t).DSN())...), write
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 4 {
		t.Errorf("exit code %d, error %v", cmd.ProcessState.ExitCode(), err)
	}
}

// stalled is a log that is read until "command started", or not at all, and then by nobody.
type stalled struct {
	*running
	read, write *os.File
}

func launchStalled(t *testing.T, atOnce bool, stdin *os.File, args ...string) *stalled {
	t.Helper()
	read, write, err := os.Pipe()
	check(t, err)
	t.Cleanup(func() { _, _ = read.Close(), write.Close() })
	s := &stalled{read: read, write: write}
	if atOnce {
		s.fill(t)
	}
	cmd := exec.Command("sh", append([]string{"-c", `exec "$@" 2>&3 3>&-`, "sh", built(t)}, args...)...)
	cmd.Env = append(os.Environ(), at(shared.Get(t).DSN())...)
	cmd.Stdin, cmd.ExtraFiles = stdin, []*os.File{write}
	s.running = launchCommand(t, cmd)
	if atOnce {
		return s
	}
	check(t, read.SetReadDeadline(time.Now().Add(patience)))
	log := make([]byte, 0, 1<<16)
	for !strings.Contains(string(log), "command started") {
		n, err := read.Read(log[len(log):cap(log)])
		log = log[:len(log)+n]
		check(t, err)
	}
	s.fill(t)
	return s
}

// fill makes the next write to the pipe wait.
func (s *stalled) fill(t *testing.T) {
	t.Helper()
	fd := int(s.write.Fd())
	check(t, syscall.SetNonblock(fd, true))
	for _, chunk := range [][]byte{make([]byte, 4096), make([]byte, 1)} {
		err := error(nil)
		for err == nil || errors.Is(err, syscall.EINTR) {
			_, err = syscall.Write(fd, chunk)
		}
		if !errors.Is(err, syscall.EAGAIN) {
			t.Fatal(err)
		}
	}
	check(t, syscall.SetNonblock(fd, false))
}

func TestALogThatNobodyReadsDelaysNoEndOfTheCommand(t *testing.T) {
	t.Parallel()
	needsLinux(t)
	for _, atOnce := range []bool{false, true} {
		election := fmt.Sprint(name(t), atOnce)
		s := launchStalled(t, atOnce, nil, quick(election, append(unhurried[:len(unhurried):len(unhurried)], sh(stubborn)...)...)...)
		f := stubbornFamily(t, s.running)
		terminate(t, shared.Get(t).DSN(), election)
		s.ends(t, exit.Lost)
		f.dead(t, "when run has ended")
		s.silent(t, patience)
	}
}

func TestALogThatNobodyReadsDelaysNoEndOfAShard(t *testing.T) {
	t.Parallel()
	needsLinux(t)
	args := append([]string{"run", "--group", name(t), "--shards", "1"}, unhurried...)
	s := launchStalled(t, false, nil, append(args, sh(stubborn)...)...)
	f := stubbornFamily(t, s.running)
	s.signal(t, syscall.SIGTERM)
	s.ends(t, exit.SignalBase+int(syscall.SIGKILL))
	f.dead(t, "when run has ended")
}

func TestALogThatNobodyReadsKeepsNoLock(t *testing.T) {
	t.Parallel()
	stdin, hangUp, err := os.Pipe()
	check(t, err)
	defer stdin.Close()
	s := launchStalled(t, false, stdin, quick(name(t), sh("read line; exit 4")...)...)
	check(t, hangUp.Close())
	awaitLock(t, shared.Get(t).DSN(), name(t))
	s.ends(t, 4)
}

func TestTheCommandOfAFrozenSupervisorEndsBeforeAnotherLeads(t *testing.T) {
	t.Parallel()
	needsLinux(t)
	r := run(t, name(t), append(ample, sh(stubborn)...)...)
	f := stubbornFamily(t, r)
	r.signal(t, syscall.SIGSTOP)
	next := run(t, name(t), "--", "echo", "leads")
	next.says(t, "leads")
	f.dead(t, "when the next leads")
	r.signal(t, syscall.SIGCONT)
	r.ends(t, exit.Lost)
	r.silent(t, patience)
}

func TestACommandThatTheGuardEndedInTimeIsNotAnOverrun(t *testing.T) {
	t.Parallel()
	needsLinux(t)
	for i := range 4 { // the order of the two reports is random
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			r := run(t, name(t), append(brief, sh("echo ready; exec sleep 1000")...)...)
			r.says(t, "ready")
			r.signal(t, syscall.SIGSTOP)
			awaitLock(t, shared.Get(t).DSN(), name(t)) // another leads: the term is long over
			r.signal(t, syscall.SIGCONT)
			r.ends(t, exit.Lost)
			if strings.Contains(r.errs.String(), "work outlived its term") {
				t.Errorf("reports an overrun of a command that was gone:\n%s", r.errs)
			}
		})
	}
}

func TestACommandThatLivesAfterItsTermIsAnOverrun(t *testing.T) {
	t.Parallel()
	needsLinux(t)
	// The command lives for the drain after the thaw, and must be seen meanwhile.
	r := run(t, name(t), append([]string{"--lease", "10s", "--drain", "6s"}, sh("echo self $$; exec sleep 1000")...)...)
	self := r.pid(t, "self ")
	check(t, sandbox.Stop(parent(t, self))) // freeze the guard, as if the whole host was frozen
	r.signal(t, syscall.SIGSTOP)
	awaitLock(t, shared.Get(t).DSN(), name(t))
	r.signal(t, syscall.SIGCONT)
	r.logs(t, "work outlived its term")
	r.ends(t, exit.Lost)
	r.silent(t, patience)
}

func TestTheCommandEndsWhenItsSupervisorIsKilled(t *testing.T) {
	t.Parallel()
	needsLinux(t)
	r := run(t, name(t), append([]string{"--lease", "60s"}, sh(stubborn)...)...) // the deadline is far
	f := stubbornFamily(t, r)
	r.signal(t, syscall.SIGKILL)
	r.silent(t, patience)
	eventually(t, "all processes have ended", func() bool { return !alive(f["self"]) && !alive(f["child"]) && !alive(f["daemon"]) })
}

func TestTheCommandEndsWhenItsGuardIsKilled(t *testing.T) {
	t.Parallel()
	needsLinux(t)
	r := run(t, name(t), append([]string{"--lease", "60s"}, sh(stubborn)...)...) // the deadline is far
	f := stubbornFamily(t, r)
	check(t, syscall.Kill(parent(t, f["self"]), syscall.SIGKILL))
	r.ends(t, 128+9)
	f.dead(t, "when run has ended")
	r.silent(t, patience)
	r.logs(t, "the guard was killed")
}

func TestTheCommandOfALostTermEndsWhileTheGuardIsFrozen(t *testing.T) {
	t.Parallel()
	needsLinux(t)
	r := run(t, name(t), append(unhurried[:len(unhurried):len(unhurried)], sh(stubborn)...)...)
	f := stubbornFamily(t, r)
	check(t, sandbox.Stop(parent(t, f["self"])))
	terminate(t, shared.Get(t).DSN(), name(t))
	r.ends(t, exit.Lost)
	f.dead(t, "when run has ended")
	r.silent(t, patience)
}

func TestTheCommandEndsWhenSupervisorAndGuardAreKilled(t *testing.T) {
	t.Parallel()
	needsLinux(t)
	r := run(t, name(t), sh("trap '' TERM; echo self $$; exec sleep 1000")...)
	self := r.pid(t, "self ")
	guard := parent(t, self)
	check(t, sandbox.Stop(guard)) // so that the guard cannot act
	r.signal(t, syscall.SIGKILL)
	check(t, syscall.Kill(guard, syscall.SIGKILL))
	r.silent(t, patience)
	eventually(t, "the command is dead", func() bool { return !alive(self) })
}

func TestRunWorksAsProcess1(t *testing.T) {
	t.Parallel()
	needsLinux(t)
	// Orphans that end before and after the command. The former must be reaped while it runs.
	script := `for i in 1 2 3; do orphans="$orphans /proc/$(sh -c 'sleep 0.05 >/dev/null & echo $!')"; done
while ls -d $orphans 2>/dev/null | grep -q . || grep -q '^[0-9]* ([^)]*) Z' /proc/[0-9]*/stat 2>/dev/null; do sleep 0.05; done
echo reaped $orphans; (sleep 1000 &); exit 9`
	unshare, err := exec.LookPath("unshare")
	if err != nil || exec.Command(unshare, "--pid", "--fork", "--mount-proc", "true").Run() != nil {
		t.Skip("not allowed to create a process namespace")
	}
	args := append([]string{"--pid", "--fork", "--mount-proc", built(t)}, quick(name(t), sh(script)...)...)
	cmd := exec.Command(unshare, args...)
	cmd.Env = append(os.Environ(), at(shared.Get(t).DSN())...)
	r := launchCommand(t, cmd)
	if orphans := strings.Fields(r.says(t, "reaped ")); len(orphans) != 3 {
		t.Errorf("got the orphans %q", orphans)
	}
	r.ends(t, 9)
	r.silent(t, patience)
}

func TestTheCommandOfACutOffHostEndsBeforeAnotherLeads(t *testing.T) {
	t.Parallel()
	needsLinux(t)
	c := own(t)
	for _, driver := range []string{"pgx", "pq"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			proxy, err := c.Proxy(t.Context())
			check(t, err)
			args := append(append([]string{"--driver", driver}, ample...), sh(stubborn)...)
			r := launch(t, at(proxy.DSN()), quick(driver, args...)...)
			f := stubbornFamily(t, r)
			proxy.BlackHole()
			next := launch(t, at(c.DSN()), quick(driver, "--", "echo", "leads")...)
			next.says(t, "leads")
			f.dead(t, "when the next leads")
			r.ends(t, exit.Lost)
			r.silent(t, patience)
			next.ends(t, exit.OK)
		})
	}
}
