//go:build unix && !linux

package supervise

import (
	"os/signal"
	"syscall"
)

// blockTTOU ignores SIGTTOU, for lack of a thread's signal mask.
func blockTTOU() (restore func()) {
	signal.Ignore(syscall.SIGTTOU)
	return func() { signal.Reset(syscall.SIGTTOU) }
}
