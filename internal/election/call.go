package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/idle"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
)

// Ask is for parts. It asks the server on the session, and waits for the answer until ctx ends, the session does, or its
// validity runs out. Then the question goes on: cancelling the question would cost the session, because drivers close a
// connection whose context ends. The question carries the values of ctx. Its answer renews nothing, because nobody judges it.
func Ask[A, T any](ctx context.Context, s *Session, statement func(*db.Queries, context.Context, A) (T, error), argument A) (T, error) {
	return AskOr(ctx, s, func(q *db.Queries, ctx context.Context) (T, error) { return statement(q, ctx, argument) }, func(T) {})
}

// Do is Ask for a statement without arguments.
func Do[T any](ctx context.Context, s *Session, statement func(*db.Queries, context.Context) (T, error)) (T, error) {
	return AskOr(ctx, s, statement, func(T) {})
}

// AskOr is Do for an answer that must not be lost: drop receives an answer that comes after AskOr has returned.
func AskOr[T any](ctx context.Context, s *Session, statement func(*db.Queries, context.Context) (T, error), drop func(T)) (T, error) {
	var value, none T
	answered, err := aside(ctx, s, func(ctx context.Context, q *db.Queries) (err error) {
		value, err = statement(q, ctx)
		return err
	}, func() { drop(value) })
	if !answered { // the call may go on, and write the value
		return none, err
	}
	return value, err
}

// aside makes a call for a question of a part.
func aside(ctx context.Context, s *Session, question pin.Call, late func()) (answered bool, err error) {
	return s.callOr(ctx, func(ctx context.Context, c *pin.Conn) error {
		refused, err := s.statements.Aside(ctx, c, func() error { return question(ctx, c.Queries()) })
		if err != nil && s.started.Load() {
			s.cancel(s.causeOf(err))
		}
		return cmp.Or(err, refused)
	}, late)
}

// Prepare is for parts, too. It prepares statements of one row each, which then cost one round trip with any driver.
func (s *Session) Prepare(ctx context.Context, statements ...string) error {
	_, err := s.call(ctx, func(ctx context.Context, c *pin.Conn) error { return c.Prepare(ctx, statements...) })
	return err
}

// A question is what the kernel asks within one call.
type question[T any] = func(ctx context.Context, c *pin.Conn) (T, Answer, error)

// ask makes a call for a question of the kernel. The call judges the answer even if nobody waits for it any more: an answer that
// comes too late for the caller may still end the session.
func ask[T any](ctx context.Context, s *Session, q question[T]) (T, error) {
	var value, none T
	repeated := false
	answered, err := s.call(ctx, func(ctx context.Context, c *pin.Conn) error {
		first := !repeated
		repeated = true
		return put(s, func() (from Answer, err error) {
			value, from, err = q(ctx, c)
			return from, err
		}, first && !c.InTx())
	})
	if !answered { // the call may go on, and write the value
		return none, err
	}
	return value, err
}

// put asks a question, judges the answer, and renews the proof, which counts from before the question was sent. again says that
// the call can be repeated: then a missing prepared statement does not end the session.
func put(s *Session, q func() (Answer, error), again bool) error {
	sent := s.proof.Now()
	from, err := q()
	if err == nil {
		err = s.Judge(from)
	}
	switch {
	case again && pgerr.IsMissingStatement(err):
	case err != nil && s.started.Load() && !tellsNothing(err):
		err = s.causeOf(err)
		s.cancel(err)
	case err == nil && from != Answer{}:
		s.proof.Renew(sent) // the only place
	}
	return err
}

// Judge returns what is wrong with an answer. The first answer that names a backend is the session's own. A part that is the
// first to ask on a session calls Judge, so that the session knows its backend from then on. Judge renews nothing.
func (s *Session) Judge(a Answer) error {
	own := s.answered()
	switch {
	case a.InRecovery:
		return fmt.Errorf("the server was demoted: %w", pgerr.ErrServerReadOnly)
	case a == Answer{}:
	case own == Answer{}:
		s.backend.CompareAndSwap(nil, &a)
	case own.Mark != "" && a.Mark != own.Mark:
		return fmt.Errorf("%w: another transaction has answered", pgerr.ErrSessionLost)
	case own.Mark == "" && a.PID != own.PID:
		return &Moved{From: own.PID, To: a.PID}
	}
	return nil
}

// A Moved error is returned when a pooler has moved the session to another backend.
type Moved struct {
	From, To int32
	Granted  []int64 // the keys of our locks that the other backend has now
}

func (m *Moved) Error() string {
	return fmt.Sprintf("%v: another backend answers (%d, not %d)", pgerr.ErrSessionPooled, m.To, m.From)
}

func (m *Moved) Unwrap() error { return pgerr.ErrSessionPooled }

// tellsNothing reports whether an error concerns only a statement: the session goes on.
func tellsNothing(err error) bool {
	return pgerr.OfStatement(err) && !errors.Is(err, pgerr.ErrSessionLost)
}

// call makes one call. It waits for the answer until ctx ends, the session does, or its validity runs out.
func (s *Session) call(ctx context.Context, call func(ctx context.Context, c *pin.Conn) error) (answered bool, err error) {
	return s.callOr(ctx, call, nil)
}

// callOr makes one call, as call does. It calls late if the call succeeds after callOr has returned.
func (s *Session) callOr(ctx context.Context, call func(ctx context.Context, c *pin.Conn) error, late func()) (answered bool, err error) {
	either, stop := backoff.Either(ctx, s.ctx)
	defer stop()
	valid, cancel := s.whileValid(either)
	defer cancel()
	if s.ctx.Err() != nil { // which either may not know yet
		return false, context.Cause(s.ctx)
	}
	return s.conn.Call(valid, func(conn context.Context, _ *db.Queries) error {
		return call(with{conn, ctx}, s.conn)
	}, late)
}

// whileValid bounds a call. A session that was not started holds nothing, so each call on it gets the whole validity. But the
// first answer must come soon: an idle connection may be silent for ever. (A pooler may let a transaction wait for a backend:
// that is no silence.)
func (s *Session) whileValid(ctx context.Context) (valid context.Context, stop func()) {
	if s.started.Load() {
		return s.proof.While(ctx, pgerr.ErrLeaseExpired)
	}
	validity := s.proof.Lease.Validity()
	why := fmt.Errorf("%w within %v", pgerr.ErrNoAnswer, validity)
	if _, waits := s.statements.(interface{ MayWait() }); s.PID() == 0 && !waits {
		validity = min(validity, idle.AnswerWithin)
		why = idle.Silent(validity)
	}
	valid, cancel := context.WithTimeoutCause(ctx, validity, why)
	return valid, cancel
}

// with is a context that has the values of another context.
type with struct {
	context.Context
	values context.Context
}

func (w with) Value(key any) any {
	if v := w.Context.Value(key); v != nil { // package context keeps its own there
		return v
	}
	return w.values.Value(key)
}

// bare is a context that ends with ctx, and has none of its values.
func bare(ctx context.Context) (b context.Context, stop func()) {
	return backoff.Either(context.Background(), ctx)
}
