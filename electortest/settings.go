package electortest

import (
	"encoding/json"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"
)

// defaults are the known parameters. Timeouts are in milliseconds, and off.
var defaults = map[string]string{
	"application_name":                    "",
	"client_connection_check_interval":    "0",
	"default_transaction_deferrable":      "off",
	"default_transaction_isolation":       "read committed",
	"idle_in_transaction_session_timeout": "0",
	"idle_session_timeout":                "0",
	"jit":                                 "on",
	"lock_timeout":                        "0",
	"plan_cache_mode":                     "auto",
	"search_path":                         `"$user", public`,
	"statement_timeout":                   "0",
	"synchronous_commit":                  "on",
	"tcp_keepalives_count":                "0",
	"tcp_keepalives_idle":                 "0",
	"tcp_keepalives_interval":             "0",
	"tcp_user_timeout":                    "0",
}

// timeouts are the parameters that are durations.
var timeouts = map[string]bool{
	"client_connection_check_interval":    true,
	"idle_in_transaction_session_timeout": true,
	"idle_session_timeout":                true,
	"lock_timeout":                        true,
	"statement_timeout":                   true,
	"tcp_user_timeout":                    true,
}

// settings are the parameters of a session. A rollback undoes the transaction's changes; its
// end undoes local changes.
type settings struct {
	values map[string]string
	undo   map[string]string // the values before this transaction
	local  map[string]string // the values before local changes
}

// get is current_setting with missing_ok.
func (s *settings) get(name string) (value string, known bool) {
	if value, known = s.values[name]; known {
		return value, true
	}
	value, known = defaults[name]
	return value, known
}

// set is set_config.
func (s *settings) set(name, value string, local bool) error {
	before, known := s.get(name)
	if !known && !strings.Contains(name, ".") {
		return newError(undefinedObject, "unrecognized configuration parameter %q", name)
	}
	if timeouts[name] {
		d, err := parseTime(value)
		if err != nil {
			return newError(invalidValue, "invalid value for parameter %q: %q", name, value)
		}
		value = strconv.FormatInt(d.Milliseconds(), 10)
	}
	keep := &s.undo
	if local {
		keep = &s.local
	} else {
		delete(s.local, name)
	}
	if *keep == nil {
		*keep = map[string]string{}
	}
	if _, kept := (*keep)[name]; !kept {
		(*keep)[name] = before
	}
	if s.values == nil {
		s.values = map[string]string{}
	}
	s.values[name] = value
	return nil
}

// end ends a transaction.
func (s *settings) end(committed bool) {
	maps.Copy(s.values, s.local)
	if !committed {
		maps.Copy(s.values, s.undo)
	}
	s.undo, s.local = nil, nil
}

// time returns the value of a timeout; 0 means off.
func (s *settings) time(name string) time.Duration {
	value, _ := s.get(name)
	d, _ := parseTime(value)
	return d
}

// units are the units of durations (PostgreSQL manual, 20.1.1).
var units = []struct {
	suffix string
	length time.Duration
}{
	{"us", time.Microsecond}, {"ms", time.Millisecond}, {"min", time.Minute},
	{"s", time.Second}, {"h", time.Hour}, {"d", 24 * time.Hour},
	{"", time.Millisecond},
}

// longest is the maximum of a parameter in milliseconds.
const longest = math.MaxInt32 * time.Millisecond

func parseTime(text string) (time.Duration, error) {
	for _, u := range units {
		if digits, ok := strings.CutSuffix(text, u.suffix); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 31)
			if err == nil && n > uint64(longest/u.length) {
				err = strconv.ErrRange
			}
			return time.Duration(n) * u.length, err
		}
	}
	return 0, strconv.ErrSyntax
}

// formatTime formats a duration as current_setting does: in the largest unit without a rest.
func formatTime(d time.Duration) string {
	for _, u := range []int{5, 4, 2, 3, 1} {
		if unit := units[u]; d > 0 && d%unit.length == 0 {
			return strconv.FormatInt(int64(d/unit.length), 10) + unit.suffix
		}
	}
	return "0"
}

// A setting is an element of a JSON argument.
type setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func decode[T any](text string) (value T, err error) {
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return value, newError("22P02", "invalid input syntax for type json: %v", err)
	}
	return value, nil
}
