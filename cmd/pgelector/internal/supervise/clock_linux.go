package supervise

import (
	"time"

	"golang.org/x/sys/unix"
)

// instant is a time that two processes of one machine can compare: nanoseconds since boot,
// including sleep.
type instant int64

func now() instant {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return instant(time.Now().UnixNano()) // in both processes
	}
	return instant(t.Nano())
}
