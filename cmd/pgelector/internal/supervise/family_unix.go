//go:build unix && !linux

package supervise

import (
	"errors"
	"os"
	"syscall"
)

func adopt() error { return nil }

func rename(string) {}

func tie(*syscall.SysProcAttr) {}

func program() (string, error) { return os.Executable() }

const followsAll = false

type process struct {
	pid, parent, group int
	zombie             bool
}

func descendants(...int) ([]process, error) {
	return nil, errors.New("descendants are followed on Linux only")
}
