package command_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/e2e/pty"
)

// atTerminal starts the program on a terminal, from a shell that prints the exit status.
func atTerminal(t *testing.T, args ...string) (typed *os.File, said *buffer) {
	t.Helper()
	line := "\"$0\" \"$@\"; echo status $?; read back; echo the shell has $back"
	cmd := exec.Command("sh", append([]string{"-c", line, built(t)}, args...)...)
	cmd.Env = append(os.Environ(), at(shared.Get(t).DSN())...)
	terminal, err := pty.Start(cmd, 120, 40)
	check(t, err)
	said = &buffer{}
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

func (b *buffer) shows(t *testing.T, text string) {
	t.Helper()
	eventually(t, "on the terminal: "+text, func() bool { return strings.Contains(b.String(), text) })
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
	said.shows(t, "it read hello")
	said.shows(t, "ready")
	typeIn(t, terminal, "\x1a") // Ctrl-Z: pgelector resumes the command, since a leader cannot be suspended
	typeIn(t, terminal, "\x03") // Ctrl-C
	said.shows(t, "caught")
	said.shows(t, "status 5")
	typeIn(t, terminal, "control\n")
	said.shows(t, "the shell has control")
}

func TestCtrlCEndsARunThatWouldRestart(t *testing.T) {
	t.Parallel()
	terminal, said := atTerminal(t, quick(name(t), "--restart", "--backoff", "10ms", "--", "sh", "-c", foreground+"exec sleep 1000")...)
	said.shows(t, "ready")
	typeIn(t, terminal, "\x03")
	said.shows(t, "status 130")
}
