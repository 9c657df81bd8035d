package roster

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pgelector/pgelector/elector"
)

// Option is an option of New. If an argument is invalid, New returns an error that wraps
// elector.ErrConfig and names the bound.
type Option func(*config) error

type config struct {
	schema   string
	interval time.Duration
	version  string
	metadata json.RawMessage
	age      time.Duration
	keep     int
	forget   time.Duration
	onError  func(error)

	onRecovered func(time.Duration)
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
	forgetAfter     = 24 * time.Hour // candidates that are silent or left
	maxForget       = 30 * 24 * time.Hour
	maxKeep         = 1_000_000
	maxIdentifier   = 63 // bytes; PostgreSQL truncates longer names
	maxVersion      = 100
	maxMetadata     = 8 << 10
)

// WithSchema sets the schema of the tables, so that several services can each have a
// roster in one database: 1 to 63 bytes of UTF-8 without NUL, not beginning with "pg_",
// which PostgreSQL reserves. Default "pgelector". The name is case-sensitive.
func WithSchema(name string) Option {
	return func(c *config) error {
		c.schema = name
		switch {
		case name == "" || len(name) > maxIdentifier:
			return fmt.Errorf("WithSchema(%q): want 1 <= length <= %d bytes, but it is %d", name, maxIdentifier, len(name))
		case !storable(name):
			return fmt.Errorf("WithSchema(%q): want UTF-8 without NUL", name)
		case strings.HasPrefix(name, "pg_"):
			return fmt.Errorf(`WithSchema(%q): PostgreSQL reserves names that begin with "pg_"`, name)
		}
		return nil
	}
}

// WithPublishInterval sets how often the roster publishes the candidates: 1 s to 1 h, in whole
// milliseconds. Default 15 s. The interval varies by up to a tenth, so that processes do not write in
// step. New candidates, terms and metadata are written at once.
func WithPublishInterval(d time.Duration) Option {
	return func(c *config) error {
		c.interval = d
		if d < minInterval || d > maxInterval {
			return fmt.Errorf("WithPublishInterval(%v): want %v <= interval <= %v", d, minInterval, maxInterval)
		}
		if d%time.Millisecond != 0 {
			return fmt.Errorf("WithPublishInterval(%v): want whole milliseconds", d)
		}
		return nil
	}
}

// WithVersion sets the version that the candidates publish: at most 100 bytes of UTF-8
// without NUL. Default: the version of the main module, if the binary has one.
func WithVersion(version string) Option {
	return func(c *config) error {
		c.version = version
		if len(version) > maxVersion || !storable(version) {
			return fmt.Errorf("WithVersion(%q): want at most %d bytes of UTF-8 without NUL, got %d", version, maxVersion, len(version))
		}
		return nil
	}
}

// WithMetadata sets keys and values that the candidates publish: UTF-8 without NUL, at
// most 8192 bytes as JSON. Default: none. SetMetadata changes them later.
func WithMetadata(metadata map[string]string) Option {
	return func(c *config) (err error) {
		c.metadata, err = encodeMetadata(metadata)
		return err
	}
}

// WithRetention sets what CleanUp keeps: terms that ended at most age ago, and of these
// the newest of each election. age is 1 h to 10 years, default 30 days; terms is 1 to
// 1 000 000, default 10 000. A last term whose end nobody recorded is as old as its beginning.
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

// WithForgetAfter sets how long the roster keeps a candidate that has left or fallen silent: 1 m to 30 days.
// Default a day. It is removed within the hour after that, and each process with a random id that was killed stays so
// long. Give all processes the same, and the roster of the page too.
func WithForgetAfter(d time.Duration) Option {
	return func(c *config) error {
		c.forget = d
		if d < time.Minute || d > maxForget {
			return fmt.Errorf("WithForgetAfter(%v): want 1m to %v", d, maxForget)
		}
		return nil
	}
}

// WithOnError sets a function that the roster calls once when writes begin to fail, with the first error, once
// when it then drops terms because too many wait, and for each row that the server refuses (ErrDropped). The
// writing goroutine waits for it. A panic is recovered. Default: none; Stats returns the last error.
func WithOnError(onError func(error)) Option {
	return func(c *config) error {
		c.onError = onError
		if onError == nil {
			return fmt.Errorf("WithOnError: the function is nil")
		}
		return nil
	}
}

// WithOnRecovered sets a function that the roster calls when a write succeeds after WithOnError was told that
// writes fail: after is for how long they did. Default: none.
func WithOnRecovered(onRecovered func(after time.Duration)) Option {
	return func(c *config) error {
		c.onRecovered = onRecovered
		if onRecovered == nil {
			return fmt.Errorf("WithOnRecovered: the function is nil")
		}
		return nil
	}
}

func configure(opts []Option) (config, error) {
	c := config{schema: defaultSchema, interval: defaultInterval, version: buildVersion(), metadata: json.RawMessage("{}"),
		age: defaultAge, keep: defaultKeep, forget: forgetAfter}
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
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	if len(text) > maxMetadata {
		return nil, fmt.Errorf("metadata: want at most %d bytes as JSON, got %d", maxMetadata, len(text))
	}
	return text, nil
}

// storable reports whether PostgreSQL can store the text.
func storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// buildVersion returns the version of the main module, or "".
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "(devel)" || len(info.Main.Version) > maxVersion {
		return ""
	}
	return info.Main.Version
}
