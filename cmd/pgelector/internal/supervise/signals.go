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

// Catch returns the signals to forward that come from now on. Those that were
// ignored when this program was started, as by nohup, stay so. A log that nobody
// reads any more (SIGPIPE) is no reason to end: from now on its writes only fail.
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

// Ends reports whether the signal asks a program to end. A hang-up does so only
// where no command runs: many take it as the order to read their files anew.
func Ends(sig os.Signal, commandRuns bool) bool {
	if sig == syscall.SIGHUP {
		return !commandRuns
	}
	return slices.Contains([]os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}, sig)
}
