package lease

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/internal/pgerr"
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
		earlier := Clock{}.Now()
		later := Instant{Mono: earlier.Mono + c.mono, Wall: earlier.Wall + c.wall}
		if got := later.Since(earlier); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestNowReadsBothClocks(t *testing.T) {
	a := Clock{}.Now()
	time.Sleep(2 * time.Millisecond)
	b := Clock{}.Now()
	if d := b.Since(a); d < 2*time.Millisecond || d > time.Minute {
		t.Errorf("%v passed", d)
	}
	if b.Mono <= a.Mono || b.Wall <= a.Wall || b.Wall != time.Duration(b.At.UnixNano()) {
		t.Errorf("got %+v, then %+v", a, b)
	}
}

// After a freeze of the process or a sleep of the machine, one of the clocks shows that the
// validity is over.
func TestNothingOfTheValidityIsLeftAfterAClockJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Lease{Length: 10 * time.Second, Heartbeat: 2 * time.Second, Drain: 2 * time.Second}
		const over = 7*time.Second + time.Millisecond
		for name, c := range map[string]struct {
			mono, wall time.Duration // by how much the proof is older
			valid      bool
		}{
			"fresh":                          {0, 0, true},
			"not quite expired":              {6 * time.Second, 6 * time.Second, true},
			"expired":                        {over, over, false},
			"only by the monotonic clock":    {over, 0, false},
			"only by the wall clock":         {0, over, false},
			"the wall clock was set back":    {time.Second, -time.Hour, true},
			"the wall clock was set forward": {time.Second, time.Hour, false},
		} {
			p := NewProof(l, Clock{})
			sent := p.Now()
			sent.Mono -= c.mono
			sent.Wall -= c.wall
			p.Renew(sent)
			if left := p.Left(); left > 0 != c.valid || p.CheckInTime() == nil != c.valid || p.Overdue() > 0 == c.valid {
				t.Errorf("%s: %v left", name, left)
			}
		}
	})
}

// A leader's log has this text: it must say whose fault the end is.
func TestAnExpirySaysWhoWasSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const s = time.Second
		l := Lease{Length: 10 * s, Heartbeat: 2 * s, Drain: 2 * s}
		for want, c := range map[string]struct {
			answered, looked Instant // by how much they are older than now
		}{
			"elector: no heartbeat was answered for 7 s (a term lasts 7 s without one; the lease is 10 s)":                         {Instant{Mono: 7 * s, Wall: 7 * s}, Instant{Mono: s / 4, Wall: s / 4}},
			"elector: this process stood still for 13 s (a term lasts 7 s without one; the lease is 10 s)":                         {Instant{Mono: 14 * s, Wall: 14 * s}, Instant{Mono: 13 * s, Wall: 13 * s}},
			"elector: this machine slept, or its clock was set forward, by 60 s (a term lasts 7 s without one; the lease is 10 s)": {Instant{Mono: s, Wall: 61 * s}, Instant{Mono: 0, Wall: 60 * s}},
		} {
			p := NewProof(l, Clock{})
			now := p.Now()
			before := func(i Instant) *Instant { return &Instant{Mono: now.Mono - i.Mono, Wall: now.Wall - i.Wall} }
			p.answered.Store(before(c.answered))
			p.looked.Store(before(c.looked))
			if err := p.Expiry(); err.Error() != want || !errors.Is(err, pgerr.ErrLeaseExpired) {
				t.Errorf("got %q, want %q", err, want)
			}
		}
	})
}

// Whoever looks first after a freeze must not hide it from the log.
func TestALookAfterAFreezeDoesNotHideIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProof(Lease{Length: 10 * time.Second}, Clock{})
		now := p.Now()
		p.answered.Store(&Instant{Mono: now.Mono - time.Minute, Wall: now.Wall - time.Minute})
		p.looked.Store(p.answered.Load())
		p.SinceAnswered()
		if err := p.Expiry(); !strings.Contains(err.Error(), "this process stood still for 60 s") {
			t.Error(err)
		}
	})
}

// A busyClock calls what it is told to when it is read.
type busyClock struct {
	reads atomic.Int32
	read  atomic.Pointer[func()]
}

func (c *busyClock) ClockShift() time.Duration {
	c.reads.Add(1)
	if read := c.read.Load(); read != nil {
		(*read)()
	}
	return 0
}

// The context may be given up just while its timer looks at the clocks.
func TestTheClocksAreNotLookedAtForAContextThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &busyClock{}
		p := NewProof(Lease{Length: time.Hour}, ClockOf(clock))
		valid, stop := p.While(t.Context(), pgerr.ErrLeaseExpired)
		clock.read.Store(&stop)
		time.Sleep(ClockCheckEvery)
		synctest.Wait()
		if valid.Err() == nil {
			t.Fatal("nobody has looked")
		}
		clock.reads.Store(0)
		time.Sleep(time.Minute)
		if clock.reads.Load() > 0 {
			t.Errorf("the clocks were read %d times afterwards", clock.reads.Load())
		}
	})
}
