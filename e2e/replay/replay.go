//go:build unix

package replay

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/model"
)

// The statements that try the lock, and those that release it. Those of the kernel stand first.
var (
	tries    = []string{"TryElection", "TryLock", "TryAsDeputy", "WaitLock", "TryTransactionLock", "TryInTransaction"}
	within   = []string{"TryTransactionLock", "TryInTransaction"} // in transaction scope: COMMIT and ROLLBACK release
	confirms = []string{"ConfirmElection", "Confirm"}
	ends     = []string{"COMMIT", "ROLLBACK"}
)

// A Verdict is what a replay found.
type Verdict struct {
	Rejected string // at which event, and why; empty if the run is accepted
	Events   int
	Sessions int
	Terms    int
	Fenced   int                  // transactions
	Beliefs  int                  // that were compared
	Late     map[string]Tolerance // by driver: how long the word of a session's end travelled
	Taken    map[string]int       // how often each action was taken, as "part: action"
}

// A Tolerance says how often, and for how long at most, a candidate believed after the server had ended its session.
type Tolerance struct {
	Beliefs int
	Longest time.Duration
}

// A replay takes a run through the parts lease and fence.
type replay struct {
	events []Event
	driver map[string]string // of a candidate
	lease  *part
	fence  *part
	start  history.Time

	session    map[int]int    // by connection
	sessions   int            // the number of the next session
	inside     map[int]bool   // sessions whose lock is a transaction's
	owner      []string       // of a session
	ended      map[int]bool   // sessions that the server has ended, or that are closed
	working    map[string]int // the session under which a candidate's work runs, plus 1
	told       map[int]history.Time
	thawed     map[string]history.Time
	lastBelief map[int]history.Time
	cut        map[string]bool
	died       map[string]bool
	fencedTx
	v Verdict
}

// A part is a state, and counts the actions that were taken.
type part struct {
	*model.Part
	*model.State
	taken map[string]int
}

func newPart(p *model.Part, taken map[string]int, sizes map[model.Sort]int) *part {
	return &part{p, p.NewState(sizes), taken}
}

// try takes an action, and returns what does not permit it.
func (p *part) try(action string, args ...int64) (refusal string) {
	a := p.Part.Action(action)
	if c := p.Do(a, args...); c != nil {
		return c.Name
	}
	p.taken[p.Part.Name+": "+action]++
	return ""
}

// A rejection is why an event is no action of the model.
type rejection string

func (p *part) must(action string, args ...int64) {
	if refusal := p.try(action, args...); refusal != "" {
		panic(rejection(fmt.Sprintf("%q is not permitted. Not true: %s", action, refusal)))
	}
}

// has reports whether a variable of truth values is true at an element.
func (p *part) has(name string, x int) bool { return p.Get(name, x) != 0 }

// Check replays a run of candidates with that lease, and the default margin and drain.
func Check(events []Event, lease time.Duration) Verdict {
	r := &replay{events: events, driver: map[string]string{}, session: map[int]int{}, ended: map[int]bool{}, working: map[string]int{}, told: map[int]history.Time{},
		thawed: map[string]history.Time{}, lastBelief: map[int]history.Time{}, inside: map[int]bool{}, cut: map[string]bool{}, died: map[string]bool{}}
	r.v = Verdict{Late: map[string]Tolerance{}, Taken: map[string]int{}, Events: len(events)}
	entered, again := 0, 0
	for i, e := range events {
		if e.Kind == Sent && (slices.Contains(tries, e.Statement) || slices.Contains(confirms, e.Statement)) {
			if _, known := r.session[e.Conn]; !known {
				r.session[e.Conn] = len(r.session)
			}
		}
		if e.Kind == Sent && slices.Contains(within, e.Statement) && r.granted(i, r.answerTo(i)) {
			again++
		}
		if e.Kind == Sent && e.Statement == "EnterTerm" {
			entered++
		}
	}
	r.sessions, r.owner = len(r.session), make([]string, max(len(r.session)+again, 1))
	n := len(r.owner)
	r.lease = newPart(model.Lease(""), r.v.Taken, map[model.Sort]int{"S": n})
	for name, d := range map[string]time.Duration{"lease": lease, "margin": lease / 10, "drain": lease / 5} {
		r.lease.SetAll(name, int64(d))
	}
	r.lease.SetAll("fresh", 1)
	r.fence = newPart(model.Fence(""), r.v.Taken, map[model.Sort]int{"S": n, "X": entered + 1, "P": 1})
	r.fencedTx = newFencedTx()
	if len(events) > 0 {
		r.start = events[0].At
	}
	if !r.lease.Holds(r.lease.Assume) || !r.lease.Holds(r.lease.Init) || !r.fence.Holds(r.fence.Init) {
		r.v.Rejected = "the first state is none of the model"
		return r.v
	}
	for i := 0; i < len(r.events) && r.v.Rejected == ""; i++ {
		r.take(i)
	}
	r.v.Sessions = r.sessions
	return r.v
}

// take takes one event, and notes why it is rejected.
func (r *replay) take(i int) {
	e := r.events[i]
	defer func() {
		switch why := recover().(type) {
		case nil:
		case rejection:
			line, _ := json.Marshal(e)
			r.v.Rejected = fmt.Sprintf("event %d of %d, at %v: %s: %s", i+1, len(r.events), e.At.Sub(r.start).Round(time.Millisecond), line, string(why))
		default:
			panic(why)
		}
	}()
	r.lease.must("time passes", max(int64(e.At-r.start), r.lease.Get("now", 0)))
	if e.Kind == Refused {
		panic(rejection("the tape cannot follow this connection: it is encrypted, or the tape has joined it in the middle"))
	}
	r.fencedEvent(i, e)
	switch e.Kind {
	case Starts:
		r.driver[e.Who] = e.Statement
	case Cut:
		r.cut[e.Who] = true
	case Mended:
		r.cut[e.Who] = false
	case Thawed:
		r.thawed[e.Who] = e.At
	case Believes:
		r.believes(e)
	case Works:
		r.works(e)
	case Returns:
		if x := r.working[e.Who] - 1; x >= 0 {
			r.over(x)
		}
		delete(r.working, e.Who)
	case Died:
		r.dies(e.Who)
	default:
		if x, is := r.session[e.Conn]; is {
			r.onSession(i, e, x)
		}
	}
}

// believes compares a belief. It was true at some time between the call and the return of IsLeader.
func (r *replay) believes(e Event) {
	r.v.Beliefs++
	p := r.lease.Part
	for x, owner := range r.owner {
		if owner == e.Who && r.fence.Get("token", x) == e.Token && r.lease.has("leads", x) && r.lease.Holds(p.Believes(int64(x))) {
			r.lastBelief[x] = e.At
			return
		}
	}
	for x, at := range r.told {
		if r.owner[x] != e.Who || r.fence.Get("token", x) != e.Token {
			continue
		}
		if late := e.At.Sub(max(at, r.thawed[e.Who])); late <= r.tolerance(e.Who) {
			t := r.v.Late[r.driver[e.Who]]
			r.v.Late[r.driver[e.Who]] = Tolerance{t.Beliefs + 1, max(t.Longest, late)}
			return
		}
	}
	panic(rejection(r.whyNot(e)))
}

// whyNot says why a belief is none of the model's.
func (r *replay) whyNot(e Event) string {
	var whys []string
	for x, owner := range r.owner {
		if owner != e.Who || r.fence.Get("token", x) != e.Token {
			continue
		}
		if !r.lease.has("leads", x) {
			whys = append(whys, fmt.Sprintf("session %d does not lead", x))
		} else {
			whys = append(whys, fmt.Sprintf("the last answered statement of session %d was sent %v before", x,
				time.Duration(r.lease.Get("now", 0)-r.lease.Get("proof", x)).Round(time.Millisecond)))
		}
	}
	if whys == nil {
		whys = []string{"nobody gave it that token"}
	}
	return fmt.Sprintf("%s believes that it leads with token %d, and must not: %s", e.Who, e.Token, strings.Join(whys, "; "))
}

// works is the beginning of a term's work.
func (r *replay) works(e Event) {
	for x, owner := range r.owner {
		if owner == e.Who && r.fence.has("begun", x) && r.fence.Get("token", x) == e.Token {
			r.working[e.Who] = x + 1
			return
		}
	}
	panic(rejection(fmt.Sprintf("%s works with token %d, and no term has begun with it", e.Who, e.Token)))
}

// String says how much was checked, and which actions of the model were taken.
func (v Verdict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "replay: %d events, %d sessions, %d terms, %d fenced transactions, %d beliefs\n", v.Events, v.Sessions, v.Terms, v.Fenced, v.Beliefs)
	for _, driver := range slices.Sorted(maps.Keys(v.Late)) {
		fmt.Fprintf(&b, "replay: over %s a candidate still believed in %d samples after the server had ended its session, for %v at most\n",
			driver, v.Late[driver].Beliefs, v.Late[driver].Longest.Round(time.Millisecond/10))
	}
	for _, p := range []*model.Part{model.Lease(""), model.Fence("")} {
		var taken, not []string
		for _, a := range p.Actions {
			if n := v.Taken[p.Name+": "+a.Name]; n > 0 {
				taken = append(taken, fmt.Sprintf("%s %d×", a.Name, n))
			} else {
				not = append(not, a.Name)
			}
		}
		fmt.Fprintf(&b, "replay: %s: %s; not taken: %s\n", p.Name, strings.Join(taken, ", "), strings.Join(not, ", "))
	}
	return b.String()
}
