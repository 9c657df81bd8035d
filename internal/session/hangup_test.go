package session

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"
)

// What drivers' connections may look like; pgx's is one that borrows.
type (
	borrowed   struct{ closed *bool }
	borrows    struct{ of borrowed }
	lendsInt   struct{}
	wantsAnArg struct{}
	givesTwo   struct{}
)

func (b borrowed) Close(ctx context.Context) error {
	_, bounded := ctx.Deadline()
	*b.closed = bounded
	return errors.New("gone already")
}

func (b borrows) Conn() borrowed             { return b.of }
func (lendsInt) Conn() int                   { return 1 }
func (wantsAnArg) Conn(int) borrowed         { panic("called") }
func (givesTwo) Conn() (a borrowed, b error) { panic("called") }

func TestAConnectionIsHungUpWithWhatItHasBorrowed(t *testing.T) {
	var closed bool
	for _, conn := range []any{borrows{borrowed{&closed}}, lendsInt{}, wantsAnArg{}, givesTwo{}, struct{}{}} {
		if err := hangUp(conn); !errors.Is(err, driver.ErrBadConn) {
			t.Errorf("%T: the pool would keep it: %v", conn, err)
		}
	}
	if !closed {
		t.Error("what is borrowed was not closed, or without a bound")
	}
}
