// Package inbox receives the requests that others make of a leader: to resign, to transfer its lock, or to let
// a statement go on that waits for the leader's transaction. Requests are locks, so nobody needs a privilege.
package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/election"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
	"github.com/pgelector/pgelector/internal/pooled"
	"github.com/pgelector/pgelector/internal/transaction"
)

// A Request asks a session to end one of its terms.
type Request struct {
	Transaction string // of the requester; names the request, also among requests to other servers
	Key         int64  // ResignKey or TransferKey of the election; 0 to wait for the end of the session's transaction
	Application string // of the requester, or the id of the successor
	Role        string // of the requester
	Addr        string // "" if hidden
	PID         int32  // of its backend
	Answer      int64  // the key of the lock of two integers that answers it
}

// A Part looks for the requests to each session that it hears of.
type Part struct {
	election.NoPart
	pool      *sql.DB
	onAll     func([]Request)
	onFailure func(context.Context, error)
	looks     election.PerSession[look]
}

// A look is what is known of the looks for the requests to one session.
type look struct {
	busy     atomic.Bool // while one goes on
	failures int         // in a row
	started  string      // when the session's server started; "" before the first
	number   int64       // tells the session from others of this process
}

// New makes the part. onAll is called with all requests that stand to a session's terms, one call at a
// time. onFailure is called when the part cannot ask for requests, and returns at once.
func New(pool *sql.DB, onAll func([]Request), onFailure func(context.Context, error)) *Part {
	return &Part{pool: pool, onAll: onAll, onFailure: onFailure}
}

// Beat asks for the requests to the session if somebody rings, unless it is asking already. No heartbeat
// waits for the answer. While Beat cannot ask, requests wait; it reports the second failure in a row. If
// nobody rings, no request stands.
func (p *Part) Beat(s *election.Session, b election.Beat) error {
	look := p.looks.Of(s)
	if !look.busy.CompareAndSwap(false, true) {
		return nil
	}
	if !b.Rung {
		p.onAll(nil)
		look.busy.Store(false)
		return nil
	}
	s.Go(func() {
		defer look.busy.Store(false)
		all, err := p.requests(s)
		if err == nil {
			look.failures = 0
			p.onAll(all)
			return
		}
		if look.failures++; look.failures == 2 && s.Context().Err() == nil {
			p.onFailure(s.Context(), fmt.Errorf("elector: cannot ask, beside the session, who has a request to the leader; requests wait: %w", pgerr.Explain(err)))
		}
		backoff.Sleep(s.Context(), s.Lease().Heartbeat) // a suspicion may cause more heartbeats
	})
	return nil
}

// sessions counts the sessions of this process.
var sessions atomic.Int64

// Started gives the session its number.
func (p *Part) Started(s *election.Session) { p.looks.Of(s).number = sessions.Add(1) }

// requests asks, on another connection, for the requests that ring this session's bell. In a failover that
// connection may lead to another server, where another backend has the same process id.
func (p *Part) requests(s *election.Session) (all []Request, err error) {
	look := p.looks.Of(s)
	if look.started == "" {
		look.started = transaction.ServerStart(s)
	}
	if look.started == "" {
		if look.started, err = election.Do(s.Context(), s, (*db.Queries).ServerStart); err != nil {
			return nil, err
		}
	}
	started := look.started
	rows, err := pooled.Read(s.Context(), p.pool, s.Lease().Length, (*db.Queries).Requests, db.RequestsParams{Pid: s.PID(), Started: started})
	for _, r := range rows {
		if r.Key == 0 && !transaction.IsOf(s) { // for the end of a statement
			continue
		}
		all = append(all, Request{Transaction: fmt.Sprint(scopeOf(s, started, look.number), " ", r.Pid, " ", r.Transaction), Key: r.Key, Application: r.ApplicationName,
			Role: r.Usename, Addr: r.ClientAddr, PID: r.Pid, Answer: AnswerKey(r.Pid, r.Transaction)})
	}
	return all, err
}

// scopeOf is the part of a request's name that differs from requests in another life of the server:
// the server numbers transactions anew when it is started, and, without another start time, when
// one of its processes has crashed. In transaction scope the next session may hear a request
// again, on the same backend.
func scopeOf(s *election.Session, serverStarted string, number int64) string {
	if transaction.IsOf(s) {
		return serverStarted
	}
	return strconv.FormatInt(number, 10)
}

// Bell is the first integer of each session's bell: the first 31 bits of SHA-256 over
// "pgelector bell", without the sign. The second is the process id of the backend.
const Bell = 983268819

// ResignKey and TransferKey are the keys of the locks of two integers that are a request to
// the leader of an election.
func ResignKey(key int64) int64   { return lockkey.Of("resign", key) }
func TransferKey(key int64) int64 { return lockkey.Of("transfer", key) }

// AnswerKey is the key of the lock of two integers by which a leader answers a request. It names
// the requester's transaction, because the next request may come from the same backend.
func AnswerKey(pid int32, transaction string) int64 {
	return lockkey.OfText(fmt.Sprintf("pgelector answer:%d:%s", pid, transaction))
}
