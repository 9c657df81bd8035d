package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/holder"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pin"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/transaction"
)

// An Asking is a request that is being made, on a connection of its own, to a primary. It lasts until
// Withdraw, the end of its ctx, or that of the connection.
type Asking struct {
	conn     *sql.Conn
	tx       *sql.Tx
	key      int64
	pid      int32 // of the leader's backend
	answer   int64 // the key of the lock that is the answer; 0 until the first Ring
	withdraw context.CancelFunc
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
	within, cancel := context.WithCancel(ctx)
	bounded, stop := bound(ctx) // within would end the request
	defer stop()
	asking, err = backoff.AwaitOr(bounded, func(context.Context) (*Asking, error) {
		conn, err := pool.Conn(within)
		if err != nil {
			return nil, err
		}
		asking := &Asking{conn: conn, key: key, pid: pid, withdraw: cancel}
		if err = asking.begin(within, name, priority); err == nil {
			return asking, nil
		}
		if errors.Is(err, pgerr.ErrServerReadOnly) {
			pin.CloseForGood(bounded, conn, true)
		}
		_ = conn.Close()
		return nil, err
	}, (*Asking).Withdraw)
	if err != nil {
		cancel()
	}
	return asking, err != nil && bounded.Err() != nil && ctx.Err() == nil, err
}

// begin begins the transaction of the request.
func (a *Asking) begin(ctx context.Context, name string, priority *int32) (err error) {
	if a.tx, err = a.conn.BeginTx(ctx, nil); pgerr.State(err) == "0A000" { // a standby: lib/pq wants to write
		err = pgerr.Wrap(pgerr.ErrServerReadOnly, err)
	}
	if err != nil {
		return err
	}
	local := []election.Setting{{Name: "idle_in_transaction_session_timeout", Value: fmt.Sprint(askingBound.Milliseconds())}, {Name: "transaction_timeout", Value: "0"}}
	if name != "" {
		local = append(local, election.Setting{Name: "application_name", Value: name})
	}
	_, err = db.New(a.tx).ApplySettings(ctx, db.ApplySettingsParams{Settings: election.Encode(local), OnlyLocal: true})
	if err == nil && priority != nil {
		_, err = db.New(a.tx).TellPriority(ctx, db.TellPriorityParams{Inside: true, Priority: *priority})
	}
	if err == nil {
		var who db.WhoAnswersRow
		if who, err = db.New(a.tx).WhoAnswers(ctx); err == nil && who.InRecovery {
			err = pgerr.ErrServerReadOnly
		}
	}
	if err != nil {
		_ = a.tx.Rollback()
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
	ctx, cancel := bound(ctx)
	defer cancel()
	high, low := lockkey.Halves(a.key)
	row, err := backoff.Await(ctx, func(ctx context.Context) (db.RingRow, error) {
		return db.New(a.tx).Ring(ctx, db.RingParams{RequestHigh: high, RequestLow: low, Pid: a.pid, Answer: a.answer})
	})
	if err == nil {
		a.answer = AnswerKey(row.OwnPid, row.Transaction)
	}
	return row.Rung, row.Answered, err
}

// Holder asks, on the server of the request, who holds the lock of an election.
func (a *Asking) Holder(ctx context.Context, key int64) (h holder.Holder, held bool, err error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	return holder.Found(backoff.Await(ctx, func(ctx context.Context) (db.HolderRow, error) { return db.New(a.tx).Holder(ctx, key) }))
}

// Withdraw ends the request. It waits a second at the most.
func (a *Asking) Withdraw() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = backoff.Await(ctx, func(context.Context) (any, error) { return nil, errors.Join(a.tx.Rollback(), a.conn.Close()) })
	a.withdraw()
}
