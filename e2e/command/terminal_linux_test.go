package command_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pgelector/pgelector/e2e/must"
	"github.com/pgelector/pgelector/e2e/sandbox"
)

// atTerminal starts the program on a terminal, from a shell that prints the exit status.
func atTerminal(t *testing.T, args ...string) (typed *os.File, said *must.Buffer) {
	t.Helper()
	return inShell(t, `"$0" "$@"; echo status $?; read back; echo the shell has $back`, args...)
}

// inShell starts a shell on a terminal, with a script that may start the program.
func inShell(t *testing.T, script string, args ...string) (typed *os.File, said *must.Buffer) {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", script, built(t)}, args...)...)
	cmd.Env = append(os.Environ(), at(shared.Get(t).DSN())...)
	terminal, err := startOnTerminal(cmd, 120, 40)
	check(t, err)
	said = &must.Buffer{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		chunk := make([]byte, 4096)
		for {
			n, err := terminal.Read(chunk)
			_, _ = said.Write(chunk[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = terminal.Close()
		<-done
		if t.Failed() {
			t.Logf("the terminal has:\n%s", said)
		}
	})
	return terminal, said
}

func typeIn(t *testing.T, terminal *os.File, text string) {
	t.Helper()
	_, err := terminal.WriteString(text)
	check(t, err)
}

func shows(t *testing.T, said *must.Buffer, text string) {
	t.Helper()
	eventually(t, "on the terminal: "+text, func() bool { return strings.Contains(said.String(), text) })
}

// foreground waits until the command is in the terminal's foreground: only then does Ctrl-C
// reach it.
const foreground = `until ps -o stat= -p $$ | grep -q "+"; do sleep 0.01; done; echo ready; `

// The shell must not be starting a program when Ctrl-Z arrives: dash uses vfork, so it would wait, with all
// signals blocked, for a program that has stopped before its exec.
func TestTheCommandHasTheTerminalWhileItRuns(t *testing.T) {
	t.Parallel()
	terminal, said := atTerminal(t, quick(name(t), "--log-level", "off", "--", "sh", "-c",
		`read line; echo "it read $line"; sleep 1000 & trap "echo caught; kill $!; exit 5" INT; `+foreground+`wait`)...)
	typeIn(t, terminal, "hello\n")
	shows(t, said, "it read hello")
	shows(t, said, "ready")
	typeIn(t, terminal, "\x1a") // Ctrl-Z: pgelector resumes the command, since a leader cannot be suspended
	typeIn(t, terminal, "\x03") // Ctrl-C
	shows(t, said, "caught")
	shows(t, said, "status 5")
	typeIn(t, terminal, "control\n")
	shows(t, said, "the shell has control")
}

// A guard that is killed does not give the terminal back.
func TestTheTerminalIsGivenBackWhenTheGuardIsKilled(t *testing.T) {
	t.Parallel()
	terminal, said := atTerminal(t, again(name(t), append(unhurried[:len(unhurried):len(unhurried)],
		"--", "sh", "-c", foreground+`echo guard $PPID .; exec sleep 1000`)...)...)
	guard := func(n int) (pid int) {
		t.Helper()
		eventually(t, fmt.Sprintf("command %d has the terminal", n), func() bool {
			all := regexp.MustCompile(`guard (\d+) \.`).FindAllStringSubmatch(said.String(), -1)
			if len(all) < n {
				return false
			}
			pid, _ = strconv.Atoi(all[n-1][1])
			return true
		})
		return pid
	}
	check(t, syscall.Kill(guard(1), syscall.SIGKILL))
	check(t, sandbox.Stop(guard(2))) // the supervisor kills it
	terminate(t, shared.Get(t).DSN(), name(t))
	guard(3)
	typeIn(t, terminal, "\x03")
	shows(t, said, "status 130")
	typeIn(t, terminal, "control\n")
	shows(t, said, "the shell has control")
}

// A command in the background that reads from the terminal is stopped by it.
const reader = `echo begun $$ .; while read line; do echo "it read $line"; done`

// inBackground starts the program with the reader from a shell with job control, waits until the
// terminal has stopped the reader, and has the shell go on. It returns the process id of the program.
func inBackground(t *testing.T, script string) (typed *os.File, said *must.Buffer, program int) {
	t.Helper()
	typed, said = inShell(t, `set -m; "$0" "$@" & echo program $! .; read go; `+script, quick(name(t), "--log-level", "off", "--", "sh", "-c", reader)...)
	printed := func(what string) (pid int) {
		t.Helper()
		eventually(t, what+" is printed", func() bool {
			if found := regexp.MustCompile(what + ` (\d+) \.`).FindStringSubmatch(said.String()); found != nil {
				pid, _ = strconv.Atoi(found[1])
			}
			return pid != 0
		})
		return pid
	}
	program, command := printed("program"), printed("begun")
	eventually(t, "the reader is stopped", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", command))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	typeIn(t, typed, "go\n")
	return typed, said, program
}

func TestACommandHasTheTerminalOnceItIsBroughtToTheForeground(t *testing.T) {
	t.Parallel()
	terminal, said, _ := inBackground(t, `fg; echo status $?; read back; echo the shell has $back`)
	typeIn(t, terminal, "hello\n")
	shows(t, said, "it read hello")
	typeIn(t, terminal, "\x03") // Ctrl-C
	shows(t, said, "status 130")
	typeIn(t, terminal, "control\n")
	shows(t, said, "the shell has control")
}

func TestASignalEndsACommandThatTheTerminalHasStopped(t *testing.T) {
	t.Parallel()
	_, said, program := inBackground(t, `wait $!; echo status $?`)
	check(t, syscall.Kill(program, syscall.SIGTERM))
	shows(t, said, "status 143") // a clean stop
}

// startOnTerminal starts the command as the leader of a session on a new terminal of that size. It
// returns the master side: writes to it are typed input, and reads from it return the output,
// until all programs on the terminal have ended.
func startOnTerminal(cmd *exec.Cmd, columns, rows int) (*os.File, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("pty: %w", err)
	}
	slave, err := openSlave(master, columns, rows)
	if err != nil {
		master.Close()
		return nil, fmt.Errorf("pty: %w", err)
	}
	defer slave.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		master.Close()
		return nil, fmt.Errorf("pty: %w", err)
	}
	return master, nil
}

// openSlave unlocks and opens the slave side of the terminal.
func openSlave(master *os.File, columns, rows int) (slave *os.File, err error) {
	raw, err := master.SyscallConn()
	if err != nil {
		return nil, err
	}
	var number int
	control := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err != nil {
			return
		}
		if number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); err != nil {
			return
		}
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(rows)})
	})
	if control != nil {
		return nil, control
	}
	if err != nil {
		return nil, err
	}
	return os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
}
