//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/pgelector/pgelector/e2e/fleet"
	"github.com/pgelector/pgelector/e2e/pgcluster"
)

// newFleet returns the candidates of a stage. It calls fail when a candidate ends unexpectedly.
func newFleet(s *stage, seed uint64, fail context.CancelCauseFunc) *fleet.Fleet {
	linked := func(m *fleet.Member) bool { return m.Route == linked && s.namespaces }
	return fleet.New(fleet.Config{
		Seats: seats,
		Seed:  seed,
		DSN:   s.dsn,
		Ended: func(m *fleet.Member) { fail(m.Err()) },
		Prepare: func(m *fleet.Member, cmd *exec.Cmd) {
			if linked(m) {
				cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
			}
		},
		Started: func(m *fleet.Member) (err error) {
			if linked(m) {
				s.wired++
				s.links[m.Name], err = newLink(s.wired, m.PID())
			}
			return err
		},
	})
}

// The candidates' routes.
const (
	direct  fleet.Route = "direct"
	proxied fleet.Route = "proxy"     // each with its own proxy
	pooled  fleet.Route = "pgbouncer" // in session mode, shared by all
	moved   fleet.Route = "pgbouncer, transaction mode"
	linked  fleet.Route = "link" // from a separate network namespace
)

// modes are those of the poolers, by route.
var modes = map[fleet.Route]pgcluster.PoolMode{pooled: pgcluster.Session, moved: pgcluster.Transaction}

var seats = []fleet.Seat{
	{ID: "a", By: "pgx", Route: direct, Draws: true},
	{ID: "b", By: "postgres", Route: direct, Draws: true},
	{ID: "c", By: "pgx", Route: proxied, Draws: true, Watch: true},
	{ID: "d", By: "postgres", Route: proxied, Draws: true, Watch: true},
	{ID: "e", By: "pgx", Route: pooled, Session: true},
	{ID: "f", By: "postgres", Route: pooled, Draws: true},
	{ID: "g", By: "pgx", Route: linked, Draws: true},
	{ID: "h", By: "postgres", Route: linked, Session: true, Watch: true},
	{ID: "i", By: "pgx", Route: moved, Draws: true},
	{ID: "j", By: "postgres", Route: moved, Draws: true, Watch: true},
}

// link is a virtual cable between this program's network namespace and a process's. It
// disappears with the process.
type link struct {
	number int
	pid    int
}

// newLink creates the cable.
func newLink(number, pid int) (*link, error) {
	l := &link{number: number%250 + 1, pid: pid}
	far := l.name() + "far"
	return l, errors.Join(
		command("ip", "link", "add", l.name(), "type", "veth", "peer", "name", far),
		command("ip", "link", "set", far, "netns", strconv.Itoa(pid)),
		command("ip", "addr", "add", l.server()+"/30", "dev", l.name()),
		command("ip", "link", "set", l.name(), "up"),
		l.inside("ip", "link", "set", far, "name", "near"),
		l.inside("ip", "addr", "add", l.candidate()+"/30", "dev", "near"),
		l.inside("ip", "link", "set", "near", "up"),
	)
}

func (l *link) name() string      { return fmt.Sprintf("c%d", l.number) }
func (l *link) server() string    { return fmt.Sprintf("10.77.%d.1", l.number) }
func (l *link) candidate() string { return fmt.Sprintf("10.77.%d.2", l.number) }

// inside runs a program in the process's network namespace.
func (l *link) inside(program string, args ...string) error {
	return command("nsenter", append([]string{"--target", strconv.Itoa(l.pid), "--net", program}, args...)...)
}

func (l *link) down() error { return command("ip", "link", "set", l.name(), "down") }
func (l *link) up() error   { return command("ip", "link", "set", l.name(), "up") }

// nobody is an unused hardware address: frames to it are lost silently.
const nobody = "02:00:00:00:00:01"

// deafen drops what the server sends, mute what the candidate sends.
func (l *link) deafen() error {
	return command("ip", "neigh", "replace", l.candidate(), "lladdr", nobody, "nud", "permanent", "dev", l.name())
}

func (l *link) mute() error {
	return l.inside("ip", "neigh", "replace", l.server(), "lladdr", nobody, "nud", "permanent", "dev", "near")
}

func (l *link) hear() error {
	return command("sh", "-c", forget, "forget", l.candidate(), l.name())
}

func (l *link) speak() error {
	return l.inside("sh", "-c", forget, "forget", l.server(), "near")
}

// forget removes a hardware address, unless it is already gone: a link that goes down removes
// it too.
const forget = `ip neigh del "$1" dev "$2" || [ -z "$(ip neigh show to "$1" dev "$2" nud permanent)" ]`

// insideVariable marks the copy of the program that runs in new namespaces.
const insideVariable = "PGELECTOR_TORTURE_INSIDE"

// inNamespaces calls fn in a copy of this program with new network and mount namespaces. If
// that is not possible, it calls fn here, with the reason.
func inNamespaces(fn func(without error) int) int {
	if os.Getenv(insideVariable) != "" {
		os.Unsetenv(insideVariable)
		return fn(command("ip", "link", "set", "lo", "up"))
	}
	if os.Geteuid() != 0 {
		return fn(errors.New("an ordinary user may not make network and mount namespaces"))
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return fn(fmt.Errorf("iproute2 is not installed: %w", err))
	}
	program, err := os.Executable()
	if err != nil {
		return fn(err)
	}
	inside := exec.Command(program, os.Args[1:]...)
	inside.Env = append(os.Environ(), insideVariable+"=1")
	inside.Stdout, inside.Stderr = os.Stdout, os.Stderr
	inside.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	signals := make(chan os.Signal, 8) // the terminal sends Ctrl-C to the copy, too, which cleans up
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if err := inside.Start(); err != nil {
		signal.Stop(signals)
		return fn(fmt.Errorf("namespaces are not allowed here: %w", err))
	}
	go func() {
		for s := range signals {
			_ = inside.Process.Signal(s)
		}
	}()
	_ = inside.Wait()
	return max(inside.ProcessState.ExitCode(), -inside.ProcessState.ExitCode())
}

// command runs a program and returns its output in the error.
func command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %q: %w: %s", name, args, err, out)
	}
	return nil
}
