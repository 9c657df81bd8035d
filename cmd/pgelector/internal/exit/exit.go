// Package exit defines the exit codes of the command pgelector. A test compares them with
// the table in docs/command.md.
package exit

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/ask"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/shard"
)

// The exit codes, besides those of the command that run ran. They follow sysexits.h where
// possible, and avoid those of shells.
const (
	OK         = 0
	Failure    = 1  // anything else
	Negative   = 3  // the answer is no: nobody leads, or the operator declined
	Usage      = 64 // invalid or conflicting flags or arguments
	Connect    = 69 // no primary to lead on: the server is away, a standby, too new (--lock-delay), or refused the login
	Lost       = 75 // leadership was lost, so the command was ended
	Privilege  = 77 // the role lacks a privilege
	Refused    = 78 // the server cannot keep the promise: a pooler, or too old
	SignalBase = 128
)

// Error is an error with an exit code.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// With returns err with an exit code, or nil if err is nil.
func With(code int, err error) error {
	if err == nil {
		return nil
	}
	return &Error{code, err}
}

// Usagef returns a usage error.
func Usagef(format string, args ...any) error {
	return &Error{Usage, fmt.Errorf(format, args...)}
}

// Silently returns an exit code without a message.
func Silently(code int) error {
	if code == OK {
		return nil
	}
	return &Error{code, ErrSilent}
}

// ErrSilent is wrapped by errors that are not to be printed when this program ends.
var ErrSilent = errors.New("")

// stopped is a stop that was asked for. It has a text for the logs of what it ends.
type stopped struct{ error }

func (stopped) Is(target error) bool { return target == ErrSilent }

// CodeOf returns the exit code of an error.
func CodeOf(err error) int {
	var e *Error
	switch {
	case err == nil:
		return OK
	case errors.As(err, &e):
		return e.Code
	default:
		return Failure
	}
}

// BySignal returns the end by a signal, for which why is the message. SIGTERM is how systemd
// and Kubernetes stop a program, so that is a success, and is not printed.
func BySignal(sig os.Signal, why error) error {
	if sig == syscall.SIGTERM {
		return &Error{OK, stopped{why}}
	}
	number, _ := sig.(syscall.Signal)
	return &Error{SignalBase + int(number), why}
}

// Classify gives an error of the library its exit code, unless it has one.
func Classify(err error) error {
	var has *Error
	if err = ByFlags(err, nil); err == nil || errors.As(err, &has) {
		return err
	}
	for _, class := range []struct {
		code int
		errs []error
	}{
		{Refused, []error{elector.ErrUnsupportedServer, elector.ErrSessionPooled}},
		{Usage, []error{elector.ErrConfig, connect.ErrUsage}},
		{Connect, []error{connect.ErrConnect, elector.ErrGaveUp, elector.ErrServerReadOnly, elector.ErrTooEarly}},
	} {
		for _, is := range class.errs {
			if errors.Is(err, is) {
				return With(class.code, err)
			}
		}
	}
	if ask.State(err) == "42501" {
		return With(Privilege, err)
	}
	return err
}

// flags are those that set the elector's options. A test holds it complete.
var flags = map[string]string{
	"WithCandidateID":        "--candidate",
	"WithDeputyInterval":     "--deputy-interval",
	"WithDrain":              "--drain",
	"WithHealth":             "--health-command",
	"WithHeartbeatInterval":  "--heartbeat",
	"WithLease":              "--lease",
	"WithLockDelay":          "--lock-delay",
	"WithMaxAttempts":        "--max-attempts",
	"WithPreemptDelay":       "--preempt-delay",
	"WithPriority":           "--priority",
	"WithReadOnlyTimeout":    "--read-only-timeout",
	"WithRetryInterval":      "--retry",
	"WithScope":              "--scope",
	"WithSynchronousStandby": "--synchronous-standby",
	"WithTokenEpoch":         "--token-epoch",
	"WithValidateInterval":   "--validate",
}

// ByFlags turns an error about options into one of bad usage that names their flags. notes,
// by the options' names, say more of single ones. Other errors are returned as they are.
func ByFlags(err error, notes map[string]string) error {
	var bad *elector.OptionError
	if !errors.As(err, &bad) {
		return err
	}
	return Usagef("%s", bad.Name(func(o elector.OptionValue) string {
		text := flags[o.Name] + " " + o.Value
		if note := notes[o.Name]; note != "" {
			text += " (" + note + ")"
		}
		return text
	}))
}

// CheckElection returns an error of bad usage unless an election may have that name.
func CheckElection(name string) error {
	if connect.HideDSN(name) != name {
		return Usagef("want an election's name, and not a connection string: set DATABASE_URL or --dsn")
	}
	return badName(elector.CheckElection(name))
}

// CheckShards returns an error of bad usage unless a group of n shards may have that name.
func CheckShards(group string, n int) error {
	if err := badName(shard.CheckGroup(group)); err != nil {
		return err
	}
	if n < 1 || n > maxShards {
		return Usagef("--shards %d: want 1 to %d", n, maxShards)
	}
	return nil
}

// maxShards bounds what a number on the command line costs.
const maxShards = 10000

func badName(err error) error {
	if err == nil {
		return nil
	}
	return Usagef("%s", strings.TrimPrefix(err.Error(), elector.ErrConfig.Error()+": "))
}
