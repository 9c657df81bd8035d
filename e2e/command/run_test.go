//go:build unix

package command_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// quick returns the arguments of a run that ends with its command, with short times, and a lease that does
// not end by itself, also on a busy machine.
func quick(election string, more ...string) []string {
	return append(quickly("run", election, "--once"), more...)
}

// again returns those of a run that runs its command again, soon.
func again(election string, more ...string) []string {
	return append(quickly("run", election, "--restart-delay", "10ms"), more...)
}

// sharing returns those of a run in a group.
func sharing(group string, shards int, more ...string) []string {
	return append(quickly("run", "--group", group, "--shards", strconv.Itoa(shards)), more...)
}

func quickly(args ...string) []string {
	return append(args, "--lease", quickLease.String(), "--heartbeat", "100ms", "--retry", "50ms")
}

const quickLease = 30 * time.Second

// brief are flags for a test that waits for the end of the lease.
var brief = []string{"--lease", "4s"}

// sh is a command of the shell.
func sh(script string) []string { return []string{"--", "sh", "-c", script} }

func run(t *testing.T, election string, rest ...string) *running {
	t.Helper()
	return launch(t, at(shared.Get(t).DSN()), quick(election, rest...)...)
}

func TestRunPassesTheExitStatusThrough(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	check(t, os.WriteFile(plain, []byte("no program\n"), 0o644))
	odd := filepath.Join(dir, "odd")
	check(t, os.WriteFile(odd, []byte("\x00\x01"), 0o755))
	for _, tt := range []struct {
		command []string
		code    int
	}{
		{[]string{"true"}, 0},
		{[]string{"sh", "-c", "exit 3"}, 3},
		{[]string{"sh", "-c", "exit 255"}, 255},
		{[]string{"sh", "-c", "kill -TERM $$"}, 128 + 15},
		{[]string{"sh", "-c", "kill -KILL $$"}, 128 + 9},
		{[]string{"sh", "-c", "kill -SEGV $$"}, 128 + 11},
		{[]string{"no-such-program"}, 127},
		{[]string{filepath.Join(dir, "none")}, 127},
		{[]string{plain}, 126},
		{[]string{odd}, 126},
	} {
		for _, driver := range []string{"pgx", "pq"} {
			args := quick(name(t), append([]string{"--driver", driver, "--log-level", "warn", "--"}, tt.command...)...)
			r := invoke(t, at(shared.Get(t).DSN()), args...)
			if r.code != tt.code {
				t.Errorf("%s: %q: exit code %d, want %d\n%s", driver, tt.command, r.code, tt.code, r.err)
			}
			if quiet := tt.code < 126 || tt.code > 127; quiet && r.err != "" {
				t.Errorf("%q: said %q", tt.command, r.err)
			}
		}
	}
}

func TestRunPassesStandardStreamsThrough(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(built(t), quick(name(t), "--log-level", "off", "--", "sh", "-c", "cat; echo oops >&2", "--election", "the command's own")...)
	cmd.Env = append(os.Environ(), at(shared.Get(t).DSN())...)
	cmd.Stdin = strings.NewReader("from standard input\n")
	r := launchCommand(t, cmd)
	if got := r.says(t, "from "); got != "standard input" {
		t.Errorf("got %q", got)
	}
	r.ends(t, 0)
	r.silent(t, patience)
	if got := r.errs.String(); got != "oops\n" {
		t.Errorf("standard error has %q", got)
	}
}

// As by flock and env: those that pgelector has inherited itself, and no others.
func TestTheCommandInheritsDescriptors(t *testing.T) {
	t.Parallel()
	const open = `echo %s $(ls /proc/self/fd /dev/fd 2>/dev/null); `
	command := quick(name(t), sh(`for fd in 3 4 5 6; do read -r line <&$fd; echo "$line"; done; `+fmt.Sprintf(open, "inside"))...)
	cmd := exec.Command("sh", append([]string{"-c", fmt.Sprintf(open, "before") + `exec "$0" "$@"`, built(t)}, command...)...)
	cmd.Env = append(os.Environ(), at(shared.Get(t).DSN())...)
	for fd := 3; fd <= 6; fd++ {
		read, write, err := os.Pipe()
		check(t, err)
		t.Cleanup(func() { _ = read.Close() })
		fmt.Fprintln(write, "descriptor", fd)
		check(t, write.Close())
		cmd.ExtraFiles = append(cmd.ExtraFiles, read)
	}
	r := launchCommand(t, cmd)
	want := r.says(t, "before ")
	for fd := 3; fd <= 6; fd++ {
		r.says(t, fmt.Sprint("descriptor ", fd))
	}
	if got := r.says(t, "inside "); got != want {
		t.Errorf("the command has the descriptors %s, want %s", got, want)
	}
	r.ends(t, exit.OK)
}

func TestTheCommandsEnvironmentDescribesItsTerm(t *testing.T) {
	t.Setenv("PGELECTOR_TOKEN", "of a run around this one")
	r := run(t, name(t), append([]string{"--candidate", "me"}, sh("env | grep ^PGELECTOR_ | sort; echo pgid $(ps -o pgid= -p $$) $$")...)...)
	if got := r.says(t, "PGELECTOR_CANDIDATE="); got != "me" {
		t.Errorf("candidate %q", got)
	}
	if got := r.says(t, "PGELECTOR_ELECTION="); got != name(t) {
		t.Errorf("election %q", got)
	}
	if got, want := r.says(t, "PGELECTOR_KEY="), strconv.FormatInt(elector.KeyFromName(name(t)), 10); got != want {
		t.Errorf("key %s, want %s", got, want)
	}
	deadline, err := time.Parse(time.RFC3339Nano, r.says(t, "PGELECTOR_LEASE_DEADLINE="))
	if left := time.Until(deadline); err != nil || left < -patience || left > quickLease {
		t.Errorf("deadline in %v, error %v", left, err)
	}
	if token, err := strconv.ParseInt(r.says(t, "PGELECTOR_TOKEN="), 10, 64); err != nil || token <= 0 {
		t.Errorf("token %d, error %v", token, err)
	}
	r.ends(t, 0)
}

func TestRunForwardsSignals(t *testing.T) {
	t.Parallel()
	names := map[syscall.Signal]string{syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT",
		syscall.SIGTERM: "TERM", syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2", syscall.SIGWINCH: "WINCH"}
	script := ""
	for _, short := range names {
		script += fmt.Sprintf("trap 'echo got %s' %[1]s; ", short)
	}
	r := run(t, name(t), sh(script+"trap 'exit 7' ALRM; echo ready; while :; do sleep 0.02; done")...)
	r.says(t, "ready")
	for sig, short := range names {
		r.signal(t, sig)
		if got := r.says(t, "got "); got != short {
			t.Errorf("sent %v, the command got %s", sig, got)
		}
	}
	// run goes on: the command itself handles the signals.
	r.signal(t, syscall.SIGALRM)
	r.ends(t, 7)
}

func TestASignalEndsARunThatWaits(t *testing.T) {
	t.Parallel()
	release := occupy(t, shared.Get(t).DSN(), name(t))
	defer release()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
		r := run(t, name(t), "--", "echo", "ran")
		r.logs(t, "leader changed")
		r.signal(t, sig)
		r.ends(t, exit.SignalBase+int(sig)) // the command was not run
	}
	r := launch(t, at(shared.Get(t).DSN()), again(name(t), "--", "echo", "ran")...)
	r.logs(t, "leader changed")
	r.stops(t)
}

func TestTheExitStatusIsTheSignalThatEndsTheCommandButForAStopOfALastingRun(t *testing.T) {
	t.Parallel()
	dsn := shared.Get(t).DSN()
	for _, args := range [][]string{quick(name(t), sh("echo ready; exec sleep 1000")...), again(name(t), sh("echo ready; exec sleep 1000")...)} {
		r := launch(t, at(dsn), args...)
		r.says(t, "ready")
		r.signal(t, syscall.SIGINT)
		r.ends(t, exit.SignalBase+int(syscall.SIGINT))
		r = launch(t, at(dsn), args...)
		r.says(t, "ready")
		r.stops(t)
	}
	run(t, name(t), sh("kill -TERM $$")...).ends(t, exit.SignalBase+int(syscall.SIGTERM)) // nobody asked for that
}

// A program may print its threads on it, and go on.
func TestACommandThatSurvivesQUITIsRunAgain(t *testing.T) {
	t.Parallel()
	dsn := shared.Get(t).DSN()
	r := launch(t, at(dsn), again(name(t), sh("trap 'echo dump' QUIT; echo ready; while :; do sleep 0.02; done")...)...)
	r.says(t, "ready")
	r.signal(t, syscall.SIGQUIT)
	r.says(t, "dump")
	terminate(t, dsn, name(t))
	r.says(t, "ready")
	r.stops(t)
	r = launch(t, at(dsn), again(name(t), sh("echo ready; exec sleep 1000")...)...)
	r.says(t, "ready")
	r.signal(t, syscall.SIGQUIT)
	r.ends(t, exit.SignalBase+int(syscall.SIGQUIT))
}

func TestRunRunsTheCommandAgainUntilItIsStopped(t *testing.T) {
	t.Parallel()
	r := launch(t, at(shared.Get(t).DSN()), again(name(t), append([]string{"--restart-delay-max", "20ms"}, sh("echo token $PGELECTOR_TOKEN; exit 1")...)...)...)
	last := 0
	for range 4 {
		token := r.pid(t, "token ")
		if token <= last {
			t.Errorf("token %d after %d", token, last)
		}
		last = token
	}
	r.signal(t, syscall.SIGTERM)
	if code := r.code(t); code != exit.OK && code != 1 { // either between two commands, or while one was running
		t.Errorf("exit code %d", code)
	}
}

func TestIfFreeLeavesWhileAnotherLeads(t *testing.T) {
	t.Parallel()
	release := occupy(t, shared.Get(t).DSN(), name(t))
	for _, tt := range []struct {
		flags string
		code  int
	}{
		{"--if-free", exit.OK},
		{"--if-free --if-free-exit-code 75", 75},
		{"--if-free --wait 5s", exit.OK},
		{"--if-free --wait 5s --if-free-exit-code 11 --takeover wait", 11},
	} {
		args := append(quick(name(t), strings.Fields(tt.flags)...), "--", "echo", "ran")
		r := invoke(t, at(shared.Get(t).DSN()), args...)
		r.want(t, tt.code, "another candidate leads")
		if strings.Contains(r.out, "ran") {
			t.Errorf("%s: it ran", tt.flags)
		}
	}
	waiting := run(t, name(t), "--if-free", "--wait", patience.String(), "--", "echo", "ran")
	waiting.logs(t, "leader changed")
	release()
	waiting.says(t, "ran")
	waiting.ends(t, exit.OK)
}

// A cron job must not be left out, without a word, because a server is away.
func TestIfFreeFailsIfTheServerDoesNotAnswerWithinTheWait(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // its backlog takes connections, and nobody answers
	check(t, err)
	defer listener.Close()
	for _, driver := range []string{"pgx", "pq"} {
		r := invoke(t, at("postgres://web@"+listener.Addr().String()+"/app?sslmode=disable"),
			quick(name(t), "--driver", driver, "--if-free", "--wait", "1s", "--", "echo", "ran")...)
		r.want(t, exit.Connect, "has not answered")
	}
}

func TestTheEndOfTheWaitDoesNotEndTheCommand(t *testing.T) {
	t.Parallel()
	r, stdin := held(t, at(shared.Get(t).DSN()), quick(name(t), "--if-free", "--wait", "5s", "--if-free-exit-code", "9", "--", "sh", "-c", "echo ran; cat; exit 6")...)
	r.says(t, "ran")
	timer := time.NewTimer(5100 * time.Millisecond) // longer than --wait: nothing may happen meanwhile
	defer timer.Stop()
	select {
	case <-r.exited:
		t.Errorf("it ended\n%s", r.errs)
	case <-timer.C:
	}
	check(t, stdin.Close())
	r.ends(t, 6)
}

func TestHoldKeepsTheLockAfterAQuickCommand(t *testing.T) {
	t.Parallel()
	r := run(t, name(t), "--log-level", "debug", "--if-free", "--hold", patience.String(), "--", "true")
	r.logs(t, "keeping the lock")
	invoke(t, at(shared.Get(t).DSN()), quick(name(t), "--if-free", "--if-free-exit-code", "9", "--", "true")...).want(t, 9)
	r.signal(t, 15)
	r.ends(t, exit.OK) // the command had done well
	failing := run(t, name(t), "--hold", patience.String(), "--", "false")
	failing.ends(t, 1) // at once: another host may succeed
}

func TestASignalEndsTheRunWithoutTheHold(t *testing.T) {
	t.Parallel()
	r := launch(t, at(shared.Get(t).DSN()), quick(name(t), "--hold", "1h", "--", "sh", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")...)
	r.says(t, "ready")
	r.signal(t, syscall.SIGTERM)
	r.ends(t, exit.OK) // the command says that it is done
}

// leadAlone starts a candidate without a command, and returns its address.
func leadAlone(t *testing.T, candidate string) (r *running, address string) {
	t.Helper()
	address = freeAddress(t)
	r = launch(t, at(shared.Get(t).DSN()), "lead", name(t), "--candidate", candidate, "--http", address)
	r.logs(t, "HTTP endpoints")
	return r, address
}

// ready waits until /readyz of that address has the status, and /leader with it.
func ready(t *testing.T, address string, status int) reply {
	t.Helper()
	eventually(t, http.StatusText(status), func() bool { return get(t, address, "/readyz").status == status })
	return get(t, address, "/leader")
}

func TestLeadIsReadyOnlyWhileItLeads(t *testing.T) {
	t.Parallel()
	first, here := leadAlone(t, "first")
	if got := ready(t, here, http.StatusOK); got.status != http.StatusOK || !strings.Contains(got.body, `"token":"`) {
		t.Errorf("got %+v", got)
	}
	second, there := leadAlone(t, "second")
	second.logs(t, "leader changed")
	if got := ready(t, there, http.StatusServiceUnavailable); !strings.Contains(got.body, `"leader":"first"`) {
		t.Errorf("got %+v", got)
	}
	if got := get(t, there, "/healthz").status; got != http.StatusOK {
		t.Errorf("a follower's /healthz: %d", got)
	}
	invoke(t, at(shared.Get(t).DSN()), "resign", name(t), "--to", "second").want(t, exit.OK, "second leads")
	ready(t, there, http.StatusOK)
	ready(t, here, http.StatusServiceUnavailable) // and it campaigns again
	second.stops(t)
	ready(t, here, http.StatusOK)
	first.signal(t, syscall.SIGINT)
	first.ends(t, exit.SignalBase+int(syscall.SIGINT))
}

func TestLeadNeedsSomebodyToAsk(t *testing.T) {
	t.Parallel()
	invoke(t, at(shared.Get(t).DSN()), "lead", name(t)).want(t, exit.Usage, "--http")
}

func TestVariablesStandForFlags(t *testing.T) {
	t.Parallel()
	dsn := shared.Get(t).DSN()
	env := []string{"PGELECTOR_DSN=" + dsn, "PGELECTOR_ELECTION=" + name(t), "PGELECTOR_CANDIDATE=first", "PGELECTOR_TIMEOUT=10s", "PGELECTOR_ONCE=true"}
	print := "echo $PGELECTOR_ELECTION $PGELECTOR_CANDIDATE"
	invoke(t, env, "run", "--", "sh", "-c", print).want(t, exit.OK, name(t)+" first\n")
	invoke(t, env, "run", "--candidate", "second", "--", "sh", "-c", print).want(t, exit.OK, name(t)+" second\n")
	invoke(t, env, "run", name(t)+"2", "--", "sh", "-c", print).want(t, exit.OK, name(t)+"2 first\n") // as --election would, NAME comes first
	invoke(t, append(env, "PGELECTOR_GROUP=g", "PGELECTOR_SHARDS=2"), "run", "other", "--", "true").want(t, exit.Usage, "PGELECTOR_GROUP and NAME exclude each other")
	invoke(t, append(env[:1:1], "PGELECTOR_GROUP=g", "PGELECTOR_ONCE=true"), "run", "--shards", "2", "--", "true").want(t, exit.Usage, "PGELECTOR_GROUP and PGELECTOR_ONCE exclude each other")
	invoke(t, append(env, "PGELECTOR_LEASE=long"), "run", "--", "true").want(t, exit.Usage, `PGELECTOR_LEASE="long", which stands for --lease: time: invalid duration`)
	// What a command of run starts is another candidate, of its own election.
	nested := built(t) + " run -- true"
	invoke(t, env, "run", "--", "sh", "-c", nested).want(t, exit.Usage, "the NAME of the election is missing")
	group := append(env[:1:1], "PGELECTOR_GROUP="+unique("group"), "PGELECTOR_SHARDS=1", "PGELECTOR_MOVES=2", "PGELECTOR_STICKY=1s")
	member := launch(t, group, "run", "--", "sh", "-c", built(t)+" run --once --election other -- true; echo status $?; exec sleep 1000")
	member.says(t, "status 0")
	member.stops(t)
}

func TestRunOnceOnAServerThatIsTooNewSaysHowLongToWait(t *testing.T) {
	t.Parallel()
	env := at(own(t).DSN())
	for _, how := range []string{"--once", "--if-free"} {
		r := invoke(t, env, "run", name(t), how, "--lock-delay", "24h", "--", "echo", "ran")
		r.want(t, exit.Connect, elector.ErrTooEarly.Error()+": wait another 23h")
		if strings.Contains(r.out, "ran") {
			t.Errorf("%s: the command was run", how)
		}
	}
	r := invoke(t, env, "run", name(t), "--if-free", "--wait", patience.String(), "--lease", "2s", "--lock-delay", "2s", "--", "echo", "ran")
	r.want(t, exit.OK, "ran")
}
