package roster

import (
	"errors"
	"fmt"
)

// Every error that this package returns or reports wraps one of these, or the cause of a
// context that ended, or the driver's error.
var (
	// ErrConfig is returned if an argument or an option is invalid.
	ErrConfig = errors.New("roster: invalid configuration")

	// ErrNotMigrated is returned if the tables do not exist or are too old.
	ErrNotMigrated = errors.New("roster: the tables are missing or too old: call Migrate, as a role that may create them")

	// ErrNoPrivilege is returned if the role lacks a privilege on the tables.
	ErrNoPrivilege = errors.New("roster: the role lacks a privilege on the roster's schema or tables: GRANT it (docs/observing.md has the statements)")

	// ErrStuck is reported if a write is due while the driver has not returned from an
	// earlier one that timed out.
	ErrStuck = errors.New("roster: the last write has not returned from the driver: check the network")

	// ErrDropped is reported if terms are dropped because too many wait to be written.
	ErrDropped = errors.New("roster: terms were dropped")

	// ErrClosed is returned by Close if the last write failed.
	ErrClosed = errors.New("roster: closed, but the last write failed")
)

// explain wraps the sentinel that tells an operator what to do.
func explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	switch sqlState(err) {
	case "3F000", "42P01", "42703": // no such schema, table or column
		return fmt.Errorf("%w (failed to %s): %w", ErrNotMigrated, doing, err)
	case "42501":
		return fmt.Errorf("%w (failed to %s): %w", ErrNoPrivilege, doing, err)
	}
	return fmt.Errorf("roster: %s: %w", doing, err)
}

// sqlState returns the SQLSTATE of a driver's error, or "".
func sqlState(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}
