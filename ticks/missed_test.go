package ticks

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/ticks/internal/db"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type every time.Duration

func (e every) Next(t time.Time) time.Time { return t.Truncate(time.Duration(e)).Add(time.Duration(e)) }

// A list has these ticks and no more.
type list []time.Time

func (l list) Next(t time.Time) time.Time {
	for _, tick := range l {
		if tick.After(t) {
			return tick
		}
	}
	return time.Time{}
}

// A daily schedule has a tick at 02:30 of each day in the zone of the time that it is given.
type daily struct{}

func (daily) Next(t time.Time) time.Time {
	for day := t.Day(); ; day++ {
		if next := time.Date(t.Year(), t.Month(), day, 2, 30, 0, 0, t.Location()); next.After(t) {
			return next
		}
	}
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func seconds(from, to int) (all []time.Time) {
	for n := from; n <= to; n++ {
		all = append(all, start.Add(time.Duration(n)*time.Second))
	}
	return all
}

func TestEachPolicyChoosesFromTheTicksThatPassed(t *testing.T) {
	for name, c := range map[string]struct {
		missed Missed
		after  time.Duration
		due    []time.Time
		passed int
	}{
		"no tick is due":                           {Coalesce(), 999 * time.Millisecond, nil, 0},
		"one tick is due":                          {Coalesce(), time.Second, seconds(1, 1), 0},
		"coalesce does the last one":               {Coalesce(), time.Hour, seconds(3600, 3600), 3599},
		"catch up does all of a few":               {CatchUp(10), 4 * time.Second, seconds(1, 4), 0},
		"catch up does the last ones of many":      {CatchUp(10), time.Hour, seconds(3591, 3600), 3590},
		"skip does a tick that is not late":        {Skip(time.Second), 1500 * time.Millisecond, seconds(1, 1), 0},
		"skip does no tick that is late":           {Skip(time.Millisecond), 3500 * time.Millisecond, nil, 3},
		"skip does all ticks that are not late":    {Skip(2 * time.Second), 5500 * time.Millisecond, seconds(4, 5), 3},
		"the server's clock was set back for long": {Coalesce(), -time.Hour, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := decide(every(time.Second), time.UTC, c.missed, start, start.Add(c.after))
			if err != nil || !slices.Equal(p.due, c.due) || p.passed != c.passed {
				t.Errorf("%d due, %d passed, %v; want %d, %d", len(p.due), p.passed, err, len(c.due), c.passed)
			}
			if want := max(0, int(c.after/time.Second)); !p.last.Equal(start.Add(time.Duration(want)*time.Second)) || !p.next.Equal(p.last.Add(time.Second)) {
				t.Errorf("decided up to %v, and the next one is at %v", p.last, p.next)
			}
		})
	}
}

// A zone that has 02:30 once, not at all, and twice.
func TestADailyTickComesOnceADayWhenTheClocksChange(t *testing.T) {
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []time.Time{time.Date(2026, 3, 7, 0, 0, 0, 0, zone), time.Date(2026, 10, 31, 0, 0, 0, 0, zone)} {
		p, err := decide(daily{}, zone, CatchUp(10), from.UTC(), from.AddDate(0, 0, 3).UTC())
		if err != nil || len(p.due) != 3 {
			t.Fatalf("%v, %v", p.due, err)
		}
		utc, err := decide(daily{}, time.UTC, CatchUp(10), from.UTC(), from.AddDate(0, 0, 3).UTC())
		if err != nil || slices.EqualFunc(p.due, utc.due, time.Time.Equal) {
			t.Errorf("the zone does not count: %v, %v", utc.due, err)
		}
		for i, due := range p.due {
			if due.In(zone).Day() != from.AddDate(0, 0, i).Day() {
				t.Errorf("tick %d is at %v", i, due.In(zone))
			}
		}
	}
}

func TestAScheduleWithoutANextTickIsAnErrorAtTheStart(t *testing.T) {
	pool := new(sql.DB)
	for name, schedule := range map[string]Schedule{"none": list{}, "past": list{start.AddDate(-1, 0, 0)}, "stands still": still{}, "nil": nil} {
		if _, err := New(pool, "a", schedule, nothing); !errors.Is(err, elector.ErrConfig) || name != "nil" && !errors.Is(err, ErrSchedule) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p, err := decide(list(seconds(1, 2)), time.UTC, CatchUp(5), start, start.Add(time.Hour))
	if err != nil || len(p.due) != 2 || !p.next.IsZero() {
		t.Errorf("a schedule that ends: %+v, %v", p, err)
	}
}

func nothing(context.Context, *sql.Tx, time.Time) error { return nil }

type still struct{}

func (still) Next(t time.Time) time.Time { return t.Add(time.Nanosecond) }

func TestInvalidOptionsAreErrors(t *testing.T) {
	for name, opt := range map[string]Option{
		"nil": nil, "schema": WithSchema(""), "reserved": WithSchema("pg_x"), "zone": WithLocation(nil), "catch up": WithMissed(CatchUp(0)),
		"too many": WithMissed(CatchUp(1001)), "skip": WithMissed(Skip(-1)), "skip nothing": WithMissed(Skip(0)), "none": WithMissed(Missed{}), "pause": WithPause(0, 1), "pauses": WithPause(2*time.Second, time.Second),
		"tries": WithGiveUp(0, time.Hour), "age": WithGiveUp(1, 0), "timeout": WithTimeout(0), "event": WithOnEvent(nil), "counter": WithCounter(nil),
	} {
		if _, err := New(new(sql.DB), "a", every(time.Second), nothing, opt); !errors.Is(err, elector.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "\x00", "\xff", string(make([]byte, 201))} {
		if _, err := New(new(sql.DB), name, every(time.Second), nothing); !errors.Is(err, elector.ErrConfig) {
			t.Errorf("the name %q: %v", name, err)
		}
	}
}

func TestOnlyATickThatHoldsUpKeepsTheOthersWaiting(t *testing.T) {
	rows := []db.UnfinishedRow{{AtMicros: 1, TryMicros: 50}, {AtMicros: 2, TryMicros: 10}}
	if row, wait := choose(rows, 20, 100, true); row != nil || wait != 30*time.Microsecond {
		t.Errorf("holding up: %+v after %v", row, wait)
	}
	if row, _ := choose(rows, 20, 100, false); row == nil || row.AtMicros != 2 {
		t.Errorf("not holding up: %+v", row)
	}
	if row, wait := choose(rows[:1], 20, 30, false); row != nil || wait != 10*time.Microsecond {
		t.Errorf("the next tick comes first: %+v after %v", row, wait)
	}
}

// Nanoseconds count only 292 years, and a wait that overflows would ask the server without a pause.
func TestAScheduleWhoseNextTickIsFarAwayIsWaitedFor(t *testing.T) {
	now := start.UnixMicro()
	for _, year := range []int{2318, 2400, 2700, 3000, 9999, 200_000} {
		if _, wait := choose(nil, now, time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro(), true); wait < maxWait {
			t.Errorf("for a tick in the year %d the wait is %v", year, wait)
		}
	}
	if _, err := New(new(sql.DB), "a", list{time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC)}, nothing); !errors.Is(err, ErrSchedule) {
		t.Errorf("a tick that PostgreSQL cannot store: %v", err)
	}
}

func TestThePauseDoublesUpToItsBound(t *testing.T) {
	for n, want := range map[int32]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second, 1_000_000: 10 * time.Second} {
		if got := pause(n, time.Second, 10*time.Second); got != want {
			t.Errorf("after %d tries: %v, want %v", n, got, want)
		}
	}
}

// However many ticks pass, claims go on until all are decided; none is decided twice, and the last ones are done.
func FuzzDecide(f *testing.F) {
	f.Add(uint16(3), uint32(3600_000), uint16(10), uint32(0))
	f.Add(uint16(1), uint32(25_000), uint16(1000), uint32(0))
	f.Add(uint16(1), uint32(25_000), uint16(1), uint32(700))
	f.Fuzz(func(t *testing.T, interval uint16, away uint32, n uint16, late uint32) {
		step := time.Duration(interval%5000+1) * time.Millisecond
		missed := CatchUp(int(n%maxCatchUp) + 1)
		if late > 0 {
			missed = Skip(time.Duration(late%100_000+1) * time.Millisecond)
		}
		last, now := start, start.Add(time.Duration(away%100_000)*time.Millisecond)
		passed, due := 0, []time.Time(nil)
		for {
			p, err := decide(every(step), time.UTC, missed, last, now)
			if err != nil {
				t.Fatal(err)
			}
			if !p.last.After(last) && !p.next.After(now) {
				t.Fatal("no progress")
			}
			passed, last, due = passed+p.passed, p.last, append(due, p.due...)
			if p.next.After(now) {
				break
			}
		}
		all := int(now.Sub(start.Truncate(step)) / step)
		if passed+len(due) != all {
			t.Errorf("%d passed and %d due of %d", passed, len(due), all)
		}
		for i, tick := range due {
			if want := now.Truncate(step).Add(-time.Duration(len(due)-1-i) * step); !tick.Equal(want) {
				t.Errorf("tick %d of %d is %v, want %v", i, len(due), tick, want)
			}
			if missed.skip && now.Sub(tick) > missed.late {
				t.Errorf("%v is late", tick)
			}
		}
		if !missed.skip && len(due) != min(all, missed.most) {
			t.Errorf("%d are due of %d", len(due), all)
		}
	})
}

func TestEachKindIsCountedFromTheStart(t *testing.T) {
	counts := map[string]int{}
	k, err := New(new(sql.DB), "a", every(time.Second), nothing, WithCounter(func(schedule, kind string, n int) { counts[schedule+" "+kind] += n }))
	if err != nil || len(counts) != len(Kinds()) {
		t.Fatalf("%v, %v", counts, err)
	}
	k.tell(Event{Kind: Done})
	k.tell(Event{Kind: PassedOver, Passed: 7})
	for kind, want := range map[Kind]int{Done: 1, Failed: 0, GivenUp: 0, PassedOver: 7, Trouble: 0} {
		if got := counts["a "+string(kind)]; got != want {
			t.Errorf("%s: %d ticks are counted, want %d", kind, got, want)
		}
	}
}
