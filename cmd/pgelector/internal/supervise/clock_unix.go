//go:build unix && !linux

package supervise

import "time"

// instant is a point in time that two processes of one machine can compare: in
// nanoseconds since 1970. A clock that is set back makes a deadline late.
type instant int64

func now() instant { return instant(time.Now().UnixNano()) }
