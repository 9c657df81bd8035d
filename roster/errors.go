package roster

import (
	"errors"
	"fmt"
)

// The errors of this package. Every error that it returns or reports wraps one of
// these or the cause of a context that ended, or else keeps the driver's error
// within reach of errors.As.
var (
	// ErrConfig is returned when an argument or an option cannot be used.
	ErrConfig = errors.New("roster: invalid configuration")

	// ErrNotMigrated is returned when the tables are not there, or of an older version.
	ErrNotMigrated = errors.New("roster: the tables are missing or too old: call Migrate, as a role that may create them")

	// ErrNoPrivilege is returned when the role lacks a privilege on the tables.
	ErrNoPrivilege = errors.New("roster: the role lacks a privilege on the roster's schema or tables: GRANT it (docs/roster.md has the statements)")

	// ErrStuck is reported when a write is due and the last one, which was given
	// up, has still not returned from the driver.
	ErrStuck = errors.New("roster: the last write has not returned from the driver: is the network alive?")

	// ErrDropped is reported when terms are dropped because too many wait to be
	// written.
	ErrDropped = errors.New("roster: terms were dropped")

	// ErrHealth is reported when the function of WithHealth panics.
	ErrHealth = errors.New("roster: the health function panicked")

	// ErrClosed is returned by Close when the last write failed.
	ErrClosed = errors.New("roster: closed, but the last write failed")
)

// explain names what an operator can do about an error of the server.
func explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	switch sqlState(err) {
	case "3F000", "42P01", "42703": // no such schema, table, column
		return fmt.Errorf("%w (while it tried to %s): %w", ErrNotMigrated, doing, err)
	case "42501":
		return fmt.Errorf("%w (while it tried to %s): %w", ErrNoPrivilege, doing, err)
	}
	return fmt.Errorf("roster: %s: %w", doing, err)
}

// sqlState is the SQLSTATE of a driver's error, "" if it has none.
func sqlState(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}
