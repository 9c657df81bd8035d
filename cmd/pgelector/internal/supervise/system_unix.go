//go:build unix && !linux

package supervise

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// blockTTOU ignores SIGTTOU. Linux blocks it on one thread instead.
func blockTTOU() (restore func()) {
	signal.Ignore(syscall.SIGTTOU)
	return func() { signal.Reset(syscall.SIGTTOU) }
}

// instant is a time that two processes of one machine can compare: nanoseconds since 1970.
// If the clock is set back, a deadline comes too late.
type instant int64

func now() instant { return instant(time.Now().UnixNano()) }

func adopt() error { return nil }

func rename(string) {}

func tie(*syscall.SysProcAttr) {}

func program() (string, error) { return os.Executable() }

const followsAll = false

type process struct {
	pid, parent, group int
	zombie             bool
}

var errUnknown = errors.New("descendants are followed on Linux only")

func descendants(...int) ([]process, error) { return nil, errUnknown }

func childrenOf(int) ([]int, error) { return nil, errUnknown }
