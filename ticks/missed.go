package ticks

import (
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// A Schedule returns the first tick after a time. The time is in the zone of WithLocation. A schedule
// without a further tick returns the zero time. A cron.Schedule of robfig/cron is a Schedule.
//
// A tick has a precision of one microsecond, as PostgreSQL has.
type Schedule interface {
	Next(time.Time) time.Time
}

// ErrSchedule is returned when a schedule has no further tick, or returns a tick that is
// not after the time that was given.
var ErrSchedule = errors.New("ticks: no next tick")

// Missed says which ticks are done of those that passed while nobody could do them.
type Missed struct {
	most int  // how many, the last ones
	skip bool // those that are later than late
	late time.Duration
}

const (
	maxCatchUp = 1000
	steps      = 10_000 // of a schedule in one claim
)

// Coalesce does the last tick that passed. It is the default.
func Coalesce() Missed { return Missed{most: 1} }

// CatchUp does the last n ticks that passed, in order. n is 1 to 1000.
func CatchUp(n int) Missed { return Missed{most: n} }

// Skip does a tick only if the tick is claimed at most late after its time, and else never. If several
// are that late, each is done, at most the last 1000. late is 1 ms or more; a hand-over takes some
// milliseconds, and after a crash up to two leases pass.
func Skip(late time.Duration) Missed { return Missed{most: maxCatchUp, skip: true, late: late} }

func (m Missed) check() error {
	if m.most < 1 || m.most > maxCatchUp {
		return fmt.Errorf("%w: CatchUp(%d): want 1 <= n <= %d", elector.ErrConfig, m.most, maxCatchUp)
	}
	if m.skip && m.late < time.Millisecond {
		return fmt.Errorf("%w: Skip(%v): want %v or more", elector.ErrConfig, m.late, time.Millisecond)
	}
	return nil
}

// A plan says what becomes of the ticks after one time and up to another.
type plan struct {
	due    []time.Time // to be done, in order
	passed int         // ticks that are never done
	last   time.Time   // up to which the plan decides
	next   time.Time   // the first tick after last; zero if there is none
}

// decide plans the ticks of a schedule after last and up to now. A plan is finished if its next tick is after
// now; otherwise so many ticks have passed that the next claim goes on.
func decide(schedule Schedule, zone *time.Location, missed Missed, last, now time.Time) (plan, error) {
	p := plan{last: last}
	var kept []time.Time
	before := last // the tick before the kept ones
	for n := 0; ; n++ {
		next, err := after(schedule, zone, p.last)
		if err != nil {
			return plan{}, err
		}
		p.next = next
		if next.IsZero() || next.After(now) {
			p.due = kept
			return p, nil
		}
		if n >= steps { // those that are kept are met again
			if len(kept) > 0 {
				p.last, p.next = before, kept[0]
			}
			return p, nil
		}
		p.last = next
		if missed.skip && now.Sub(next) > missed.late {
			before = next
			p.passed++
			continue
		}
		if len(kept) == missed.most {
			before, kept = kept[0], kept[1:]
			p.passed++
		}
		kept = append(kept, next)
	}
}

// lastYear begins before the microseconds since 1970 and the timestamps of PostgreSQL end.
var lastYear = time.Date(294_246, 1, 1, 0, 0, 0, 0, time.UTC)

// after returns the first tick after a time, or the zero time.
func after(schedule Schedule, zone *time.Location, last time.Time) (time.Time, error) {
	next := schedule.Next(last.In(zone))
	if next.IsZero() {
		return time.Time{}, nil
	}
	if next.After(lastYear) {
		return time.Time{}, fmt.Errorf("%w: the schedule says %v, which PostgreSQL cannot store", ErrSchedule, next)
	}
	if next = next.Truncate(time.Microsecond); !next.After(last) {
		return time.Time{}, fmt.Errorf("%w: the schedule says that %v comes after %v", ErrSchedule, next, last.In(zone))
	}
	return next, nil
}

// pause returns the wait after the n-th try, which doubles from least to most.
func pause(n int32, least, most time.Duration) time.Duration {
	d := least
	for ; n > 1 && d < most; n-- {
		d *= 2
	}
	return min(d, most)
}
