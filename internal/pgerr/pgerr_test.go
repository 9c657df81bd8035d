package pgerr

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

var errSome = errors.New("some sentinel")

// bothDrivers returns the errors with which the drivers report an SQLSTATE.
func bothDrivers(state string) []error {
	return []error{&pgconn.PgError{Code: state}, &pq.Error{Code: pqerror.Code(state)}}
}

func TestTheSQLStateOfBothDriversIsFound(t *testing.T) {
	for _, err := range bothDrivers("57P05") {
		if got := State(fmt.Errorf("elector: something: %w", err)); got != "57P05" {
			t.Errorf("%T: %q", err, got)
		}
	}
	for _, err := range []error{nil, io.EOF, errSome} {
		if got := State(err); got != "" {
			t.Errorf("%v: %q", err, got)
		}
	}
}

func TestBrokenReportsErrorsThatEndTheConnection(t *testing.T) {
	want := map[error]bool{
		nil: false, errSome: false, context.DeadlineExceeded: false,
		driver.ErrBadConn: true, sql.ErrConnDone: true, io.EOF: true, io.ErrUnexpectedEOF: true,
		&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}: true,
	}
	for state, gone := range map[string]bool{"57P01": true, "57P02": true, "57P05": true, "08P01": true, "08006": true, "57P03": false, "57014": false, "53300": false, "42P05": false} {
		for _, err := range bothDrivers(state) {
			want[err] = gone
		}
	}
	for err, gone := range want {
		if Broken(err) != gone || err != nil && Broken(fmt.Errorf("wrapped: %w", err)) != gone {
			t.Errorf("Broken(%v) = %v", err, Broken(err))
		}
	}
}

func TestAnErrorOfAStatementLeavesItsConnectionUsable(t *testing.T) {
	for state, usable := range map[string]bool{"57014": true, "42501": true, "53200": true, "XX000": true,
		"57P01": false, "57P04": false, "08P01": false, "25P02": false, "25P03": false, "26000": false, "42P05": false} {
		for _, err := range bothDrivers(state) {
			if OfStatement(fmt.Errorf("wrapped: %w", err)) != usable {
				t.Errorf("OfStatement(%v) = %v", err, !usable)
			}
		}
	}
	for _, err := range []error{nil, errSome, io.EOF, driver.ErrBadConn} {
		if OfStatement(err) {
			t.Errorf("%v is of a statement", err)
		}
	}
}

func TestAnErrorOfPgxAboutItsConnectionMayMeanThatItIsBroken(t *testing.T) {
	err := new(pgconn.PgConn).Exec(t.Context(), "").Close()
	if err == nil || Broken(err) || !MaybeBroken(fmt.Errorf("wrapped: %w", err)) {
		t.Errorf("%T %v: %t, %t", err, err, Broken(err), MaybeBroken(err))
	}
	if MaybeBroken(sent{errSome}) {
		t.Error("an error after a statement was sent may mean that its connection is broken")
	}
	if !MaybeBroken(io.EOF) || MaybeBroken(errSome) || MaybeBroken(nil) {
		t.Errorf("%t, %t, %t", MaybeBroken(io.EOF), MaybeBroken(errSome), MaybeBroken(nil))
	}
}

// A sent error is one of pgx after it has sent a statement.
type sent struct{ error }

func (sent) SafeToRetry() bool { return false }

func TestWrapKeepsTheErrorAndWrapsOnce(t *testing.T) {
	once := Wrap(errSome, io.EOF)
	if twice := Wrap(errSome, once); twice != once || !errors.Is(once, errSome) || !errors.Is(once, io.EOF) {
		t.Errorf("got %v, %v", once, twice)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	if err := CauseOr(ctx, io.EOF); err != io.EOF {
		t.Errorf("got %v", err)
	}
	cancel(errSome)
	if err := CauseOr(ctx, nil); err != nil {
		t.Errorf("no error became %v", err)
	}
	if err := CauseOr(ctx, io.EOF); !errors.Is(err, errSome) || !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

func TestExplainNamesThePoolerAndKeepsTheDriversError(t *testing.T) {
	for state, pooled := range map[string]bool{"42P05": true, "26000": true, "08P01": false, "57P01": false, "42601": false} {
		for _, err := range bothDrivers(state) {
			got := Explain(err)
			if errors.Is(got, ErrSessionPooled) != pooled || !errors.Is(got, err) {
				t.Errorf("Explain(%v) = %v", err, got)
			}
		}
	}
	if again := Explain(Explain(bothDrivers("26000")[0])); again.Error() != Explain(bothDrivers("26000")[0]).Error() {
		t.Errorf("explained twice: %v", again)
	}
}

func TestExplainNamesTheFullLockTable(t *testing.T) {
	for _, err := range bothDrivers("53200") {
		if got := Explain(err); !errors.Is(got, ErrLockTableFull) || !errors.Is(got, err) {
			t.Errorf("Explain(%v) = %v", err, got)
		}
	}
}
