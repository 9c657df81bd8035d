package session

import "time"

// instant is one reading of both clocks. The monotonic clock may stand still
// while a machine sleeps, and the wall clock may be set: each shows what the
// other hides.
type instant struct {
	at   time.Time     // for people
	mono time.Duration // since the process began
	wall time.Duration // since the Unix epoch
}

var processBegan = time.Now()

func now() instant {
	t := time.Now()
	return instant{at: t, mono: t.Sub(processBegan), wall: time.Duration(t.UnixNano())}
}

// A processClock is what a driver has whose pools are to be taken for those of a
// process of their own, as electortest's are: ClockShift is by how much its wall
// clock was set, and does not return while it is frozen.
type processClock interface{ ClockShift() time.Duration }

// now is the time of the session's process.
func (s *Session) now() instant {
	if s.process == nil {
		return now()
	}
	shift := s.process.ClockShift() // before the clocks are read: it may take a while
	i := now()
	i.wall += shift
	return i
}

// since is how much time may have passed since an earlier reading: the larger
// of what the two clocks say, so that a jump counts as time.
func (i instant) since(earlier instant) time.Duration {
	return max(i.mono-earlier.mono, i.wall-earlier.wall)
}
