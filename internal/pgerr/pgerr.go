// Package pgerr reads what an error of a driver or a context says, by its
// SQLSTATE and its kind, never by its text, and wraps it so that it stays within
// reach of errors.Is and errors.As.
package pgerr

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// State is the SQLSTATE of a driver's error, "" if it has none. The errors of
// lib/pq and of pgx both have this method.
func State(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}

// IsMissingStatement reports whether a prepared statement does not exist any more (26000), or
// exists already (42P05).
func IsMissingStatement(err error) bool {
	state := State(err)
	return state == "42P05" || state == "26000"
}

// Broken reports whether err says that the connection was dead, or that the
// server ended it (57P01 shutdown, 57P02 crash, 57P05 idle), or that something between did
// (class 08, connection exceptions). For a prepared statement on a dead connection
// database/sql says sql.ErrConnDone.
func Broken(err error) bool {
	var network *net.OpError
	state := State(err)
	return state == "57P01" || state == "57P02" || state == "57P05" || strings.HasPrefix(state, "08") ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network)
}

// OfStatement reports whether the server has refused a statement, and may answer the next one on the
// same connection. It may not after an error of class 08 or 57P (see Broken), and does not in a
// transaction that has failed (class 25). A prepared statement that is missing shows another backend.
func OfStatement(err error) bool {
	state := State(err)
	ends := strings.HasPrefix(state, "08") || strings.HasPrefix(state, "25") || strings.HasPrefix(state, "57P")
	return state != "" && !ends && !IsMissingStatement(err)
}

// MaybeBroken is Broken, and true also for an error of pgx that has the method SafeToRetry. That
// says "conn closed" of a connection that ended during a statement of its simple protocol, BEGIN
// for one, but also that the caller's context was done before it.
func MaybeBroken(err error) bool {
	var pgx interface{ SafeToRetry() bool }
	return Broken(err) || errors.As(err, &pgx) && pgx.SafeToRetry()
}

// Wrap wraps err with a sentinel, unless it already does.
func Wrap(sentinel, err error) error {
	if errors.Is(err, sentinel) {
		return err
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}

// CauseOr is why a call failed: the context's cause if that ended, with the
// driver's error kept, else the error itself; nil if it did not fail.
func CauseOr(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// IsMixedUp reports whether a prepared statement does not exist any more, or
// exists already. Once, that may be because other code has run DISCARD ALL on the
// connection; twice in a row, because another backend answers, and then the error says so.
func IsMixedUp(err error) bool {
	return IsMissingStatement(err) && !errors.Is(err, ErrSessionPooled)
}

// Explain names the cause of errors that have only one: a full lock table, or shared
// backends, where prepared statements come and go.
func Explain(err error) error {
	switch {
	case IsMixedUp(err):
		return Wrap(ErrMixedUp, err)
	case State(err) == "53200":
		return Wrap(ErrLockTableFull, err)
	}
	return err
}
