package session

import (
	"testing"
	"time"
)

func TestTheClockThatSaysMoreCounts(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct{ mono, wall, want time.Duration }{
		"both clocks run":                      {3 * s, 3 * s, 3 * s},
		"the wall clock is set forward":        {3 * s, 3*s + time.Hour, 3*s + time.Hour},
		"the wall clock is set back":           {3 * s, 3*s - time.Hour, 3 * s},
		"the machine slept, monotonic stopped": {3 * s, 8 * time.Hour, 8 * time.Hour},
		"the wall clock stands still":          {3 * s, 0, 3 * s},
		"no time has passed":                   {0, 0, 0},
	} {
		earlier := now()
		later := instant{mono: earlier.mono + c.mono, wall: earlier.wall + c.wall}
		if got := later.since(earlier); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestNowReadsBothClocks(t *testing.T) {
	a := now()
	time.Sleep(2 * time.Millisecond)
	b := now()
	if d := b.since(a); d < 2*time.Millisecond || d > time.Minute {
		t.Errorf("%v passed", d)
	}
	if b.mono <= a.mono || b.wall <= a.wall || b.wall != time.Duration(b.at.UnixNano()) {
		t.Errorf("got %+v, then %+v", a, b)
	}
}

// After a freeze of the process or a sleep of the machine, one of the clocks shows that the
// validity is over.
func TestASessionIsNotValidAfterAClockJump(t *testing.T) {
	l := leaseOf(10*time.Second, 2*time.Second, 2*time.Second)
	for name, c := range map[string]struct {
		mono, wall time.Duration // by how much the proof is older
		valid      bool
	}{
		"fresh":                          {0, 0, true},
		"not quite expired":              {6 * time.Second, 6 * time.Second, true},
		"expired":                        {7 * time.Second, 7 * time.Second, false},
		"only by the monotonic clock":    {7 * time.Second, 0, false},
		"only by the wall clock":         {0, 7 * time.Second, false},
		"the wall clock was set back":    {time.Second, -time.Hour, true},
		"the wall clock was set forward": {time.Second, time.Hour, false},
	} {
		s := &Session{lease: l, ctx: t.Context()}
		proof := now()
		proof.mono -= c.mono
		proof.wall -= c.wall
		s.renew(proof)
		if s.Valid() != c.valid {
			t.Errorf("%s: valid %v, %v left", name, s.Valid(), s.left())
		}
	}
}

func leaseOf(length, heartbeat, drain time.Duration) Lease {
	return Lease{Length: length, Heartbeat: heartbeat, Drain: drain}
}
