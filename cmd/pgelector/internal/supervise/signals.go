//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// forwarded are the signals that the supervisor passes on to the command.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGCONT,
}

// Catch returns a channel of the signals to forward. Signals that were ignored when this
// program started, as by nohup, stay ignored. Catch also catches SIGPIPE: when nobody reads
// the log any more, writes fail, but the program goes on.
func Catch() <-chan os.Signal {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	caught := make(chan os.Signal, 16)
	for _, sig := range forwarded {
		if !signal.Ignored(sig) {
			signal.Notify(caught, sig)
		}
	}
	return caught
}

// Ends reports whether the signal asks the program to end. SIGHUP does only if no command
// runs: many programs reload their configuration on it.
func Ends(sig os.Signal, commandRuns bool) bool {
	if sig == syscall.SIGHUP {
		return !commandRuns
	}
	return slices.Contains([]os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}, sig)
}
