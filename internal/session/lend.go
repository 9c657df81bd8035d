package session

import (
	"context"
)

// Borrow takes a connection from the pool. One that leads to an old primary is closed.
func (from *Source) Borrow(ctx context.Context) (*Session, error) {
	s, err := borrow(ctx, from.pool, from.Lease, func(err error) { from.Report(context.Background(), Calling, err) })
	if err != nil {
		return nil, err
	}
	if err := from.lent(ctx, s); err != nil {
		s.Discard()
		return nil, err
	}
	return s, nil
}

// Lend borrows a connection, and begins a transaction if inside.
func (from *Source) Lend(ctx context.Context, inside bool) (*Session, error) {
	s, err := from.Borrow(ctx)
	if err != nil || !inside {
		return s, err
	}
	if err := from.Anew(ctx, s); err != nil {
		s.Discard()
		return nil, err
	}
	return s, nil
}

// Anew begins a transaction, without the locks of the last one.
func (from *Source) Anew(ctx context.Context, s *Session) error {
	err := from.Inside.Begin(ctx, from, s)
	if err == nil {
		err = from.lent(ctx, s) // it may be on another server than the connection was
	}
	return err
}

// LendToLead lends a connection for a session that may be elected.
func (from *Source) LendToLead(ctx context.Context) (*Session, error) {
	if from.InTransaction() {
		return from.Inside.LendToLead(ctx, from)
	}
	return from.Borrow(ctx)
}

// With lends fn a connection. It goes back to the pool if fn returns nil.
func (from *Source) With(ctx context.Context, fn func(*Session) error) error {
	return from.LendIn(ctx, from.InTransaction(), fn)
}

// LendIn is With for a session inside a transaction, or outside.
func (from *Source) LendIn(ctx context.Context, inside bool, fn func(*Session) error) error {
	s, err := from.Lend(ctx, inside)
	if err != nil {
		return err
	}
	if err := fn(s); err != nil {
		s.Discard()
		return err
	}
	s.GiveBack()
	return nil
}
