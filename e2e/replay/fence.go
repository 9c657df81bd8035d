//go:build unix

package replay

import (
	"fmt"
	"strconv"

	"github.com/pgelector/pgelector/e2e/model"
)

// fencedTx are the fenced transactions of a run.
type fencedTx struct {
	open map[int]int // by connection
	who  map[int]string
	next int
}

func newFencedTx() fencedTx { return fencedTx{open: map[int]int{}, who: map[int]string{}} }

// fencedEvent is an event of a connection that may have a fenced transaction. EnterTerm executes at once if it succeeds: its
// session has the lock when it executes, and so when it was sent. A transaction ends when COMMIT is sent, as early as possible.
func (r *replay) fencedEvent(i int, e Event) {
	tx, open := r.open[e.Conn]
	switch {
	case e.Conn == 0:
	case e.Kind == Sent && e.Statement == "EnterTerm":
		if a := r.answerTo(i); a != nil && len(a.Row) > 0 && a.Row[0] == "entered" {
			r.enter(e)
		}
	case !open:
	case e.Kind == Sent && e.Statement == "COMMIT":
		r.fence.must("commit", int64(tx))
		delete(r.open, e.Conn)
	case e.Kind == Sent && e.Statement == "ROLLBACK", e.Kind == Fatal, e.Kind == ServerClosed, e.Kind == ClientClosed:
		r.fence.must("roll back", int64(tx))
		delete(r.open, e.Conn)
	}
}

// enter shares the guard, and checks the session of the term.
func (r *replay) enter(e Event) {
	for x, owner := range r.owner {
		if owner == e.Who && r.fence.has("begun", x) && r.fence.has("holds", x) {
			tx := r.next
			r.next++
			r.v.Fenced++
			r.open[e.Conn], r.who[tx] = tx, e.Who
			r.fence.must("share", int64(tx), int64(x))
			r.fence.must("check", int64(tx))
			if r.fence.Get("state", tx) == model.Entered {
				return
			}
		}
	}
	panic(rejection(e.Who + " enters a term, and no session of it has the lock"))
}

// abort rolls back the transactions of a process that has died.
func (r *replay) abort(who string) {
	for conn, tx := range r.open {
		if r.who[tx] == who {
			r.fence.must("roll back", int64(tx))
			delete(r.open, conn)
		}
	}
}

// free is the end of a session's lock.
func (r *replay) free(x int) {
	switch {
	case !r.fence.has("holds", x):
	case r.lease.has("killed", x):
		r.fence.must("ended by somebody", int64(x))
	default:
		r.fence.must("free", int64(x))
	}
}

// confirmed is an answer of Confirm that has a token: the barrier was passed, and the term may begin.
func (r *replay) confirmed(i int, e Event, x int) {
	token, err := strconv.ParseInt(e.Row[2], 10, 64)
	if err != nil {
		panic(rejection("a token that is no number: " + e.Row[2]))
	}
	if r.fence.Get("token", x) != 0 || !r.fence.has("holds", x) { // a trial; or the session has ended meanwhile
		return
	}
	if token <= r.fence.Get("xid", 0) {
		panic(rejection(fmt.Sprintf("token %d is not larger than the last one, %d", token, r.fence.Get("xid", 0))))
	}
	for conn, tx := range r.open { // the word of the end of some is on its way to the tape
		if r.endsSoon(i, conn) {
			r.fence.must("roll back", int64(tx))
			delete(r.open, conn)
		}
	}
	r.fence.Set("xid", 0, token-1) // other transactions
	r.fence.must("look", int64(x))
	r.fence.must("barrier and token", int64(x))
	if !r.inside[x] {
		r.begin(x)
	}
}

// begin begins a term, if the answer was read in time.
func (r *replay) begin(x int) {
	r.fence.must("begin", int64(x))
	if r.lease.try("begin", int64(x)) == "" {
		r.v.Terms++
	}
}

// confirmedSession is the session that Confirm has confirmed: its own, or in transaction scope one on another connection.
func (r *replay) confirmedSession(e Event, x int) int {
	for y, owner := range r.owner {
		if r.inside[y] && owner == e.Who && r.fence.has("holds", y) && r.fence.Get("token", y) == 0 {
			return y
		}
	}
	return x
}

func (r *replay) endsSoon(i, conn int) bool {
	for j := i + 1; j < len(r.events) && r.events[j].At.Sub(r.events[i].At) < r.tolerance(r.events[i].Who); j++ {
		if e := r.events[j]; e.Conn == conn && (e.Kind == Fatal || e.Kind == ServerClosed || e.Kind == ClientClosed) {
			return true
		}
	}
	return false
}
