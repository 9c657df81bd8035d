package electortest

import (
	"time"
)

// Statements by which a server says for how long it has been there.

// onItsClock converts the time since then to microseconds of the server's clock.
func (s *Server) onItsClock(then time.Time) int64 {
	return int64(float64(time.Since(then).Microseconds()) * s.clockRate)
}

// shownTimeline is 0 in recovery.
func (s *Server) shownTimeline() int64 {
	if s.recovery {
		return 0
	}
	return s.timeline
}

func tenure(x *execution, m *message) (Answer, error) {
	s, owner := x.server, ""
	if holder := s.holder(bigint(m.integer(1))); holder != nil && int64(holder.pid) == m.integer(0) {
		owner = holder.nameOfTransaction()
	}
	return one(int64(x.pid), s.shownTimeline(), s.started.UnixMicro(), s.onItsClock(s.started), owner), nil
}

func lastCheckpoint(x *execution, _ *message) (Answer, error) {
	s := x.server
	return one(s.shownTimeline(), s.started.UnixMicro(), s.checkpoint.timeline, s.onItsClock(s.checkpoint.began)), nil
}
