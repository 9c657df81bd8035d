package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/transaction"
)

// An Asking is a request that is being made, on a connection of its own, to a primary. It lasts until
// Withdraw, or the end of the connection.
type Asking struct {
	conn   *pin.Conn
	key    int64
	pid    int32 // of the leader's backend
	answer int64 // the key of the lock that is the answer; 0 until the first Ring
}

// askingBound is how long the server keeps a request whose connection is silent.
const askingBound = 10 * time.Second

// Send makes the request of that key to the session with that backend. A name, if not "", is
// the application_name of the connection meanwhile, and a priority, if not nil, is told beside the request. A connection that is
// silent for askingBound is given up for the next one, once for each that was idle. One that leads to a standby, which knows no
// session of the primary, is closed: the pool may lead to several servers in turn.
func Send(ctx context.Context, pool *sql.DB, pid int32, key int64, name string, priority *int32) (*Asking, error) {
	next := pooled.NextIdle(pool)
	for n := 1; ; n++ {
		asking, silent, err := send(ctx, pool, pid, key, name, priority)
		more := next.More()
		again := silent && more || errors.Is(err, pgerr.ErrServerReadOnly) && (more || n < transaction.MaxServers)
		if !again {
			return asking, err
		}
	}
}

func send(ctx context.Context, pool *sql.DB, pid int32, key int64, name string, priority *int32) (asking *Asking, silent bool, err error) {
	bounded, stop := bound(ctx)
	defer stop()
	conn, _, err := pin.Take(bounded, pool, askingBound)
	if err == nil {
		conn.StayInside()
		a := &Asking{conn: conn, key: key, pid: pid}
		_, err = conn.Call(bounded, func(ctx context.Context, _ *db.Queries) error { return a.begin(ctx, name, priority) }, nil)
		if err == nil {
			return a, false, nil
		}
		conn.Discard(true, false)
	}
	return nil, bounded.Err() != nil && ctx.Err() == nil, err
}

// begin begins the transaction of the request, within a call.
func (a *Asking) begin(ctx context.Context, name string, priority *int32) error {
	if err := transaction.Begin(ctx, a.conn); err != nil {
		return err
	}
	local := []election.Setting{{Name: "idle_in_transaction_session_timeout", Value: fmt.Sprint(askingBound.Milliseconds())}, {Name: "transaction_timeout", Value: "0"}}
	if name != "" {
		local = append(local, election.Setting{Name: "application_name", Value: name})
	}
	err := transaction.Apply(ctx, a.conn, local)
	if err == nil && priority != nil {
		_, err = a.conn.Queries().TellPriority(ctx, db.TellPriorityParams{Inside: true, Priority: *priority})
	}
	if err == nil {
		var who db.WhoAnswersRow
		if who, err = a.conn.Queries().WhoAnswers(ctx); err == nil && who.InRecovery {
			err = pgerr.ErrServerReadOnly
		}
	}
	return err
}

// bound returns a copy of ctx that also ends after askingBound.
func bound(ctx context.Context) (bounded context.Context, cancel context.CancelFunc) {
	return context.WithTimeoutCause(ctx, askingBound, fmt.Errorf("%w within %v", pgerr.ErrNoAnswer, askingBound))
}

// Ring asks again, which shows that the request still stands. answered is true once the leader
// has said that it has done what it could.
func (a *Asking) Ring(ctx context.Context) (rung, answered bool, err error) {
	high, low := lockkey.Halves(a.key)
	var row db.RingRow
	err = a.ask(ctx, func(ctx context.Context, q *db.Queries) (err error) {
		row, err = q.Ring(ctx, db.RingParams{RequestHigh: high, RequestLow: low, Pid: a.pid, Answer: a.answer})
		return err
	})
	if err != nil { // a call that was given up may write the row
		return false, false, err
	}
	a.answer = AnswerKey(row.OwnPid, row.Transaction)
	return row.Rung, row.Answered, nil
}

// Holder asks, on the server of the request, who holds the lock of an election.
func (a *Asking) Holder(ctx context.Context, key int64) (h holder.Holder, held bool, err error) {
	var row db.HolderRow
	err = a.ask(ctx, func(ctx context.Context, q *db.Queries) (err error) {
		row, err = q.Holder(ctx, key)
		return err
	})
	if err != nil {
		return holder.Found(db.HolderRow{}, err)
	}
	return holder.Found(row, nil)
}

func (a *Asking) ask(ctx context.Context, call pin.Call) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	_, err := a.conn.Call(ctx, call, nil)
	return err
}

// Withdraw ends the request. It waits a second or two at the most.
func (a *Asking) Withdraw() {
	ctx, cancel := context.WithTimeout(context.Background(), pin.CloseGrace)
	defer cancel()
	if _, err := a.conn.Call(ctx, func(context.Context, *db.Queries) error { return a.conn.RollBack() }, nil); err != nil {
		a.conn.Discard(true, true)
		return
	}
	a.conn.GiveBack()
}
