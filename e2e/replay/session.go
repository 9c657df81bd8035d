//go:build unix

package replay

import (
	"fmt"
	"slices"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/model"
)

func (r *replay) onSession(i int, e Event, x int) {
	switch e.Kind {
	case Opened:
		r.owner[x] = e.Who
		r.lease.must("open", int64(x))
	case Sent:
		if !r.ended[x] {
			r.sent(i, e, x)
		}
	case Answered:
		if !r.ended[x] {
			r.answered(i, e, x)
		}
	case Fatal, ServerClosed:
		r.end(e, x)
	case ClientClosed:
		r.closed(i, e, x)
	}
}

// sent sends a statement. The server executes a statement between "sent" and "answered". One that does not take the lock is
// executed at once, one that takes it with its answer: if any order of the server's steps explains the run, this one does.
func (r *replay) sent(i int, e Event, x int) {
	a := r.answerTo(i)
	kind := int64(model.Beat)
	switch {
	case slices.Contains(tries, e.Statement) && r.granted(i, a):
		kind = model.Try
		if r.fence.has("ended", x) { // the transaction that held the lock is over, and the connection is used again
			x = r.anew(e)
		}
		if slices.Contains(within, e.Statement) {
			r.inside[x] = true
			r.fence.Set("inside", x, 1)
		}
	case r.inside[x] && slices.Contains(ends, e.Statement):
		kind = model.Unlock
		if r.working[e.Who]-1 != x {
			r.over(x)
		}
	case e.Statement == "Unlock", e.Statement == "UnlockTo" && a != nil && len(a.Row) > 1 && a.Row[1] == "t":
		kind = model.Unlock
		if r.working[e.Who]-1 != x {
			r.over(x)
		}
	}
	r.lease.must("send", int64(x), kind)
	if kind == model.Try || a == nil && kind == model.Beat { // an answer that never comes proves nothing
		return
	}
	if r.lease.try("execute", int64(x)) == "" && kind == model.Unlock {
		r.free(x)
	}
}

// anew has a new session on a connection.
func (r *replay) anew(e Event) (x int) {
	x = r.sessions
	r.sessions++
	r.session[e.Conn], r.owner[x] = x, e.Who
	r.lease.must("open", int64(x))
	return x
}

// answered reads an answer.
func (r *replay) answered(i int, e Event, x int) {
	if r.lease.Get("phase", x) == model.Sent {
		if r.lease.Get("kind", x) == model.Try {
			r.makeWay(i, x)
		}
		r.lease.must("execute", int64(x))
	}
	if r.lease.Get("phase", x) != model.Executed {
		return
	}
	if r.inside[x] && e.State != "" && r.fence.has("holds", x) { // an error frees the locks of a transaction
		r.end(e, x)
		return
	}
	tried := r.lease.Get("kind", x) == model.Try
	r.lease.must("answer", int64(x))
	if tried {
		if !r.lease.has("mine", x) {
			panic(rejection("the server grants a lock that " + r.holder(x) + " holds"))
		}
		r.fence.must("grant", int64(x))
	}
	switch {
	case slices.Contains(confirms, e.Statement) && len(e.Row) > 2 && e.Row[0] == "t":
		r.confirmed(i, e, r.confirmedSession(e, x))
	case e.Statement == "PingTransaction" && e.State == "" && r.fence.Get("token", x) > 0 && !r.fence.has("begun", x):
		r.fence.must("stay", int64(x))
		r.begin(x)
	}
}

// makeWay ends the session that has the lock, if the word of its end is still on its way to the tape.
func (r *replay) makeWay(i, x int) {
	for y := range r.owner {
		if y == x || !r.lease.has("holds", y) {
			continue
		}
		if r.lease.try("lease runs out", int64(y)) == "" {
			r.free(y)
		} else if e := r.soon(i, y); e != nil {
			r.end(*e, y)
		}
	}
}

// soon is the end of a session that the tape sees within the tolerance.
func (r *replay) soon(i, x int) *Event {
	for j := i + 1; j < len(r.events) && r.events[j].At.Sub(r.events[i].At) < r.tolerance(r.owner[x]); j++ {
		e := &r.events[j]
		if y, is := r.session[e.Conn]; is && y == x && (e.Kind == Fatal || e.Kind == ServerClosed || e.Kind == ClientClosed) {
			return e
		}
	}
	return nil
}

// tolerance is how long the word of a session's end may travel: to the tape, and to a candidate.
func (r *replay) tolerance(who string) time.Duration {
	return history.Told([]history.Event{{Kind: history.Hello, Process: who, Driver: r.driver[who]}}, who)
}

func (r *replay) holder(x int) string {
	for y := range r.owner {
		if y != x && r.lease.has("holds", y) {
			return fmt.Sprintf("%s (session %d)", r.owner[y], y)
		}
	}
	return "nobody"
}

// answerTo is the answer to the statement that was sent at an event; nil if none came.
func (r *replay) answerTo(i int) *Event {
	for j := i + 1; j < len(r.events); j++ {
		if e := &r.events[j]; e.Conn == r.events[i].Conn {
			switch e.Kind {
			case Answered:
				return e
			case Fatal, ServerClosed, ClientClosed:
				return nil
			}
		}
	}
	return nil
}

// granted reports whether the statement sent at an event was granted the lock, by its answer. The answer of a wait does not say;
// then Confirm follows, and says so.
func (r *replay) granted(i int, a *Event) bool {
	if a == nil || a.State != "" {
		return false
	}
	if r.events[i].Statement == "TryInTransaction" {
		return a.Tag == "SELECT 2"
	}
	if r.events[i].Statement != "WaitLock" {
		return len(a.Row) > 0 && (a.Row[0] == "granted" || a.Row[0] == "t")
	}
	for j := i + 1; j < len(r.events); j++ {
		e := &r.events[j]
		if e.Conn != a.Conn || e.Kind != Sent {
			continue
		}
		if !slices.Contains(confirms, e.Statement) {
			return false
		}
		c := r.answerTo(j)
		return c != nil && len(c.Row) > 0 && c.Row[0] == "t"
	}
	return false
}

// over ends a term, and has its work returned.
func (r *replay) over(x int) {
	if r.lease.has("leads", x) {
		r.lease.must("term ends", int64(x))
	}
	if r.lease.has("work", x) {
		r.lease.must("work returns", int64(x))
	}
}

// end is the server's end of a session.
func (r *replay) end(e Event, x int) {
	if r.ended[x] {
		return
	}
	r.ended[x] = true
	if !r.lease.has("alive", x) {
		return
	}
	silent := e.State == "57P05" || e.State == "25P03"
	if !silent || r.lease.try("lease runs out", int64(x)) != "" {
		told := "told"
		if r.cut[r.owner[x]] {
			told = "told, and the link is dead"
		}
		r.lease.must(told, int64(x))
		r.lease.must("freed", int64(x))
		r.told[x] = e.At
	}
	r.free(x)
}

// closed is the end of a session by its candidate.
func (r *replay) closed(i int, e Event, x int) {
	if r.ended[x] {
		return
	}
	if r.diesAt(i, e) {
		r.dies(e.Who)
		return
	}
	r.ended[x] = true
	if r.lease.Get("phase", x) == model.Closed || !r.lease.has("alive", x) {
		return
	}
	if r.working[e.Who]-1 != x {
		r.over(x)
	} else {
		if r.lease.has("leads", x) {
			r.lease.must("term ends", int64(x))
			r.lease.Set("ended", x, int64(max(r.lastBelief[x]-r.start, 0))) // at any time since
		}
		r.lease.must("the drain is over", int64(x))
	}
	r.lease.must("close", int64(x))
	r.lease.must("server sees the close", int64(x))
	r.free(x)
}

// diesAt reports whether a connection was closed because its process was killed: its other connections are, too.
func (r *replay) diesAt(i int, e Event) bool {
	for j := i; j < len(r.events) && r.events[j].At.Sub(e.At) < 100*time.Millisecond; j++ {
		if r.events[j].Kind == Died && r.events[j].Who == e.Who {
			return true
		}
	}
	return r.died[e.Who]
}

// dies is the death of a process. Its work has ended, and its sessions end.
func (r *replay) dies(who string) {
	if r.died[who] {
		return
	}
	r.died[who] = true
	delete(r.working, who)
	for x, owner := range r.owner {
		if owner != who || r.ended[x] {
			continue
		}
		r.ended[x] = true
		r.over(x)
		if r.lease.has("alive", x) {
			r.lease.must("close", int64(x))
			r.lease.must("server sees the close", int64(x))
		}
		r.free(x)
	}
	r.abort(who)
}
