package dashboard

import (
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/roster"
)

// ErrConfig is wrapped by the errors of New: an argument or option cannot be used.
var ErrConfig = errors.New("dashboard: invalid configuration")

// Option changes a default of New. A bad argument is an error that wraps
// ErrConfig and names the bound.
type Option func(*Handler) error

const (
	defaultTitle   = "Elections"
	defaultRefresh = 10 * time.Second
	minRefresh     = time.Second
	defaultWindow  = 24 * time.Hour
	minWindow      = time.Minute
	maxWindow      = 365 * 24 * time.Hour
)

// WithTitle sets the heading of the page. Default "Elections".
func WithTitle(title string) Option {
	return func(h *Handler) error {
		h.title = title
		if title == "" {
			return fmt.Errorf("WithTitle: the title is empty")
		}
		return nil
	}
}

// WithElections names elections that are shown whether or not anybody leads them,
// in this order, before others. It is also how the page learns the name that
// belongs to a key. Default: none, and so without a roster only keys are shown.
func WithElections(names ...string) Option {
	return func(h *Handler) error {
		h.names = append(h.names, names...)
		for _, name := range names {
			if name == "" {
				return fmt.Errorf("WithElections: a name is empty")
			}
		}
		return nil
	}
}

// WithRoster adds what a roster of the same database has recorded: elections that
// had a candidate within the last day, their names, candidates, health, metadata
// and terms. Default: none.
func WithRoster(r *roster.Roster) Option {
	return func(h *Handler) error {
		h.roster = r
		if r == nil {
			return fmt.Errorf("WithRoster: the roster is nil")
		}
		return nil
	}
}

// WithRefresh sets how often a page that is open refreshes itself, in whole
// seconds. Default 10 s, at least 1 s, at most 1 h; 0 is never.
func WithRefresh(d time.Duration) Option {
	return func(h *Handler) error {
		h.refresh = d.Truncate(time.Second)
		if d != 0 && (d < minRefresh || d > time.Hour) {
			return fmt.Errorf("WithRefresh(%v): want %v <= interval <= %v, or 0", d, minRefresh, time.Hour)
		}
		return nil
	}
}

// WithWindow sets how far back the timeline goes. Default 24 h, at least 1 min,
// at most 365 days. It shows the newest 50 terms of an election at the most.
func WithWindow(d time.Duration) Option {
	return func(h *Handler) error {
		h.window = d
		if d < minWindow || d > maxWindow {
			return fmt.Errorf("WithWindow(%v): want %v <= window <= %v", d, minWindow, maxWindow)
		}
		return nil
	}
}
