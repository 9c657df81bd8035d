package dashboard

import (
	"fmt"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/roster"
	"github.com/pgelector/pgelector/shard"
)

// Option is an option of New. If its argument is invalid, New returns an error that wraps
// elector.ErrConfig and names the bound.
type Option func(*Handler) error

const (
	defaultTitle   = "Elections"
	defaultRefresh = 10 * time.Second
	minRefresh     = time.Second
	defaultWindow  = 24 * time.Hour
	minWindow      = time.Minute
	maxWindow      = 365 * 24 * time.Hour
)

// WithTitle sets the heading of the page, and the end of its title: "2 problems – Elections".
// Default "Elections".
func WithTitle(title string) Option {
	return func(h *Handler) error {
		h.title = title
		if title == "" {
			return fmt.Errorf("WithTitle: the title is empty")
		}
		return nil
	}
}

// WithElections names elections. The page shows them even if nobody stands for them, which is a
// problem, and before others that need as much, in this order. Default: none; without a roster the
// page then shows keys only.
func WithElections(names ...string) Option {
	return func(h *Handler) error {
		h.names = append(h.names, names...)
		for _, name := range names {
			if err := elector.CheckElection(name); err != nil {
				return err
			}
		}
		return nil
	}
}

// WithShards shows the shards of a group (package shard) in one row and section: how many are led, and
// by whom. They, and the seats of the members, are not shown as elections.
func WithShards(group string, names ...string) Option {
	return func(h *Handler) error {
		if err := shard.CheckGroup(group); err != nil {
			return err
		}
		if _, err := shard.NewSet(names...); err != nil {
			return err
		}
		if len(names) == 0 {
			return fmt.Errorf("WithShards(%q): the group has no shards", group)
		}
		h.groups = append(h.groups, newShards(group, names))
		return nil
	}
}

// WithRoster adds the records of a roster of the same database: elections that had a
// candidate within the last day, their names, candidates, health, metadata and terms.
// Default: none.
func WithRoster(r *roster.Roster) Option {
	return func(h *Handler) error {
		h.roster = r
		if r == nil {
			return fmt.Errorf("WithRoster: the roster is nil")
		}
		return nil
	}
}

// WithRefresh sets how often an open page refreshes itself: 1 s to 1 h in whole seconds, or
// 0 for never. Default 10 s. However often, the page asks the server at most once a second.
func WithRefresh(d time.Duration) Option {
	return func(h *Handler) error {
		h.refresh = d
		if d != 0 && (d < minRefresh || d > time.Hour) || d%time.Second != 0 {
			return fmt.Errorf("WithRefresh(%v): want %v <= interval <= %v in whole seconds, or 0", d, minRefresh, time.Hour)
		}
		return nil
	}
}

// WithWindow sets how far back the timelines go: 1 min to 365 days. Default 24 h. They begin
// with the oldest term of that time, and show at most the newest 50 terms of an election; fewer if
// there are more than 100 elections.
func WithWindow(d time.Duration) Option {
	return func(h *Handler) error {
		h.window = d
		if d < minWindow || d > maxWindow {
			return fmt.Errorf("WithWindow(%v): want %v <= window <= %v", d, minWindow, maxWindow)
		}
		return nil
	}
}
