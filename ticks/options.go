package ticks

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pgelector/pgelector/elector"
)

// Option is an option of New. If an argument is invalid, New returns an error that wraps
// elector.ErrConfig and names the bound.
type Option func(*config) error

type config struct {
	schema      string
	zone        *time.Location
	missed      Missed
	least, most time.Duration // the pause after a try that failed
	tries       int32
	age         time.Duration
	holdUp      bool
	timeout     time.Duration
	onEvent     func(Event)
	count       func(schedule, kind string, n int)
}

func defaults() config {
	return config{schema: "pgelector", zone: time.UTC, missed: Coalesce(), least: time.Second, most: 5 * time.Minute,
		tries: 20, age: 24 * time.Hour, holdUp: true, timeout: time.Minute, onEvent: func(Event) {}, count: func(string, string, int) {}}
}

const maxIdentifier = 63 // bytes; PostgreSQL truncates longer names

// WithSchema sets the schema of the tables: 1 to 63 bytes of UTF-8 without NUL, not beginning with
// "pg_", which PostgreSQL reserves. Default "pgelector", which the roster's tables share. The name is case-sensitive.
func WithSchema(name string) Option {
	return func(c *config) error {
		c.schema = name
		if name == "" || len(name) > maxIdentifier || !storable(name) || strings.HasPrefix(name, "pg_") {
			return fmt.Errorf(`WithSchema(%q): want 1 to %d bytes of UTF-8 without NUL, not beginning with "pg_"`, name, maxIdentifier)
		}
		return nil
	}
}

// WithLocation sets the zone in which the schedule counts. Default time.UTC. The zones of the process,
// of the server and of its sessions count only if they are given here.
func WithLocation(zone *time.Location) Option {
	return func(c *config) error {
		if c.zone = zone; zone == nil {
			return fmt.Errorf("WithLocation: the zone is nil")
		}
		return nil
	}
}

// WithMissed sets which of the ticks are done that passed while nobody could do them. Default Coalesce().
func WithMissed(missed Missed) Option {
	return func(c *config) error {
		c.missed = missed
		return missed.check()
	}
}

// WithPause sets the pause after a try that failed: least after the first one, twice as long after each
// further one, never longer than most. 1 ms <= least <= most <= 24 h. Default 1 s and 5 min.
func WithPause(least, most time.Duration) Option {
	return func(c *config) error {
		c.least, c.most = least, most
		if least < time.Millisecond || most < least || most > 24*time.Hour {
			return fmt.Errorf("WithPause(%v, %v): want 1ms <= least <= most <= 24h", least, most)
		}
		return nil
	}
}

// WithGiveUp sets when a tick is given up: after that many tries, or that long after the first claim
// of the tick, whichever comes first. 1 <= tries <= 1 000 000, 1 s <= age <= 10 years. Default 20 tries and 24 h.
func WithGiveUp(tries int, age time.Duration) Option {
	return func(c *config) error {
		c.tries, c.age = int32(min(max(tries, 0), 1_000_001)), age
		if tries < 1 || tries > 1_000_000 || age < time.Second || age > 10*365*24*time.Hour {
			return fmt.Errorf("WithGiveUp(%d, %v): want 1 <= tries <= 1000000 and 1s <= age <= 10 years", tries, age)
		}
		return nil
	}
}

// WithHoldUp sets whether a tick that failed holds up the later ticks until the tick is done or given up. Default
// true: ticks are done in order, and those that pass meanwhile are missed ticks (WithMissed). With
// false, later ticks are claimed and done in the pauses, until 1000 ticks are unfinished.
func WithHoldUp(holdUp bool) Option {
	return func(c *config) error { c.holdUp = holdUp; return nil }
}

// WithTimeout sets when the context of one try ends: 1 ms to 24 h. Default 1 min. The transaction of a try
// has one lease of the elector, so what writes to tx fails by then, whatever this option says.
func WithTimeout(d time.Duration) Option {
	return func(c *config) error {
		if c.timeout = d; d < time.Millisecond || d > 24*time.Hour {
			return fmt.Errorf("WithTimeout(%v): want 1ms <= timeout <= 24h", d)
		}
		return nil
	}
}

// WithOnEvent sets a function that hears of each Event, one after the other, on the goroutine of Lead,
// which waits for the function. Default: none.
func WithOnEvent(onEvent func(Event)) Option {
	return func(c *config) error {
		if c.onEvent = onEvent; onEvent == nil {
			return fmt.Errorf("WithOnEvent: the function is nil")
		}
		return nil
	}
}

// WithCounter sets a function that counts the ticks of each kind of Event, such as the method Ticks of the hooks for
// Prometheus and OpenTelemetry. New calls it with n = 0 for each kind, so that each counter exists from the start.
// Default: none.
func WithCounter(count func(schedule, kind string, n int)) Option {
	return func(c *config) error {
		if c.count = count; count == nil {
			return fmt.Errorf("WithCounter: the function is nil")
		}
		return nil
	}
}

func configure(opts []Option) (config, error) {
	c := defaults()
	for i, opt := range opts {
		if opt == nil {
			return c, fmt.Errorf("%w: option %d is nil", elector.ErrConfig, i+1)
		}
		if err := opt(&c); err != nil {
			return c, fmt.Errorf("%w: %w", elector.ErrConfig, err)
		}
	}
	return c, nil
}

// storable reports whether PostgreSQL can store the text.
func storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }
