//go:build unix && !linux

package supervise

import (
	"os/signal"
	"syscall"
)

// blockTTOU ignores SIGTTOU. Linux blocks it on one thread instead.
func blockTTOU() (restore func()) {
	signal.Ignore(syscall.SIGTTOU)
	return func() { signal.Reset(syscall.SIGTTOU) }
}
