package supervise

import (
	"time"

	"golang.org/x/sys/unix"
)

// instant is a point in time that two processes of one machine can compare: in
// nanoseconds since the machine started, its sleep included.
type instant int64

func now() instant {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return instant(time.Now().UnixNano()) // for both processes alike
	}
	return instant(t.Nano())
}
