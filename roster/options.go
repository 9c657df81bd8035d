package roster

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"
)

// Option changes a default of New. A bad argument is an error that wraps
// ErrConfig and names the bound.
type Option func(*config) error

type config struct {
	schema   string
	interval time.Duration
	version  string
	metadata json.RawMessage
	health   func() float64
	age      time.Duration
	keep     int
	onError  func(error)
}

const (
	defaultSchema   = "pgelector"
	defaultInterval = 15 * time.Second
	minInterval     = time.Second
	maxInterval     = time.Hour
	defaultAge      = 30 * 24 * time.Hour
	minAge          = time.Hour
	maxAge          = 10 * 365 * 24 * time.Hour
	defaultKeep     = 10_000
	maxKeep         = 1_000_000
	maxIdentifier   = 63 // bytes; PostgreSQL would cut the rest off
	maxVersion      = 100
	maxMetadata     = 8 << 10
)

// WithSchema chooses the schema in which the tables are, so that several
// services can each have a roster of their own in one database. Default
// "pgelector". Any name of 1 to 63 bytes of UTF-8 will do, but for NUL, and for
// one that begins with "pg_", which PostgreSQL keeps for itself. The name is
// quoted, so it is taken as it is, capitals and all.
func WithSchema(name string) Option {
	return func(c *config) error {
		c.schema = name
		switch {
		case name == "" || len(name) > maxIdentifier:
			return fmt.Errorf("WithSchema(%q): want 1 <= length <= %d bytes, but it is %d", name, maxIdentifier, len(name))
		case !storable(name):
			return fmt.Errorf("WithSchema(%q): want UTF-8 without NUL", name)
		case strings.HasPrefix(name, "pg_"):
			return fmt.Errorf(`WithSchema(%q): PostgreSQL keeps names that begin with "pg_" for itself`, name)
		}
		return nil
	}
}

// WithPublishInterval sets how often the candidates are published anew. Default
// 15 s, at least 1 s, at most 1 h. Each time is earlier or later by up to a tenth,
// so that processes do not write in step. What changes is published at once.
func WithPublishInterval(d time.Duration) Option {
	return func(c *config) error {
		c.interval = d
		if d < minInterval || d > maxInterval {
			return fmt.Errorf("WithPublishInterval(%v): want %v <= interval <= %v", d, minInterval, maxInterval)
		}
		return nil
	}
}

// WithVersion sets the version that the candidates publish: at most 100 bytes of
// UTF-8 without NUL. Default: the version of the main module, if the program was
// built with one.
func WithVersion(version string) Option {
	return func(c *config) error {
		c.version = version
		if len(version) > maxVersion || !storable(version) {
			return fmt.Errorf("WithVersion(%q): want at most %d bytes of UTF-8 without NUL, got %d", version, maxVersion, len(version))
		}
		return nil
	}
}

// WithMetadata sets what the candidates publish besides: any keys and values of
// UTF-8 without NUL, of at most 8192 bytes together, as JSON. Default: none.
// SetMetadata changes it later.
func WithMetadata(metadata map[string]string) Option {
	return func(c *config) (err error) {
		c.metadata, err = encodeMetadata(metadata)
		return err
	}
}

// WithHealth sets a function that tells how well this process is, in a unit of
// yours; 0 to 1 is shown as a share. It is called before each publication, on the
// roster's own goroutine, and holds that up until it returns. NaN, an infinity or
// a panic is published as unknown. Default: the health is unknown.
func WithHealth(health func() float64) Option {
	return func(c *config) error {
		c.health = health
		if health == nil {
			return fmt.Errorf("WithHealth: the function is nil")
		}
		return nil
	}
}

// WithRetention sets what CleanUp keeps: terms that ended no longer than age ago,
// and of these the newest of each election. Defaults 30 days and 10 000 terms; an
// age of 1 h to 10 years, and 1 to 1 000 000 terms.
func WithRetention(age time.Duration, terms int) Option {
	return func(c *config) error {
		c.age, c.keep = age, terms
		if age < minAge || age > maxAge {
			return fmt.Errorf("WithRetention(%v, %d): want %v <= age <= %v", age, terms, minAge, maxAge)
		}
		if terms < 1 || terms > maxKeep {
			return fmt.Errorf("WithRetention(%v, %d): want 1 <= terms <= %d", age, terms, maxKeep)
		}
		return nil
	}
}

// WithOnError sets a function that is told of each write that failed, and of what
// was dropped. It is called on the roster's own goroutine, which waits for it; a
// panic in it is recovered. Default: none; Stats tells the last error.
func WithOnError(onError func(error)) Option {
	return func(c *config) error {
		c.onError = onError
		if onError == nil {
			return fmt.Errorf("WithOnError: the function is nil")
		}
		return nil
	}
}

func configure(opts []Option) (config, error) {
	c := config{schema: defaultSchema, interval: defaultInterval, version: buildVersion(), metadata: json.RawMessage("{}"),
		age: defaultAge, keep: defaultKeep}
	for i, opt := range opts {
		if opt == nil {
			return c, fmt.Errorf("%w: option %d is nil", ErrConfig, i+1)
		}
		if err := opt(&c); err != nil {
			return c, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	return c, nil
}

func encodeMetadata(metadata map[string]string) (json.RawMessage, error) {
	if metadata == nil {
		metadata = map[string]string{}
	}
	for key, value := range metadata {
		if !storable(key) || !storable(value) {
			return nil, fmt.Errorf("metadata %q: %q: want UTF-8 without NUL", key, value)
		}
	}
	text, err := json.Marshal(metadata)
	if err != nil || len(text) > maxMetadata {
		return nil, fmt.Errorf("metadata: want at most %d bytes as JSON, got %d (%v)", maxMetadata, len(text), err)
	}
	return text, nil
}

// storable reports whether PostgreSQL can keep the text.
func storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// buildVersion is the version of the main module, "" if it has none.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "(devel)" || len(info.Main.Version) > maxVersion {
		return ""
	}
	return info.Main.Version
}
