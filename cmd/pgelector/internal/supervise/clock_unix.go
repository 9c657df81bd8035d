//go:build unix && !linux

package supervise

import "time"

// instant is a time that two processes of one machine can compare: nanoseconds since 1970.
// If the clock is set back, a deadline comes too late.
type instant int64

func now() instant { return instant(time.Now().UnixNano()) }
