package elector

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/lease"
	"github.com/pgelector/pgelector/internal/lock"
)

// A candidate is what an Elector, its campaigns and its terms share.
type candidate struct {
	config
	pool      *sql.DB
	election  string
	announcer *announcer
	monitor   *healthMonitor  // nil without WithHealth
	closing   context.Context // done when the elector, or its session, is closed
	terms     *work           // attempts and terms: the session's, if there is one
	sender    *lock.Sender    // the session's, if there is one

	inTransaction func() bool  // whether the last server was used in transaction scope
	listens       func() error // nil if the loss of a session is listened for, or why it is not

	// Touched by the campaign, and by its term, alone.
	acquirer lock.Acquirer
	standing lock.Standing
	wakeUps  *lock.WakeUps // nil without a notifier
	seen     lock.Holder   // the leader that was last seen
	token    int64         // the largest of its terms

	last atomic.Pointer[sighting] // for LastLeader
}

func newCandidate(pool *sql.DB, election string, c config) *candidate {
	origin := hooks.Origin{Election: election, Key: c.key, CandidateID: c.candidateID}
	n := &candidate{terms: newWork(), config: c, pool: pool, election: election, announcer: newAnnouncer(origin, c.hooks, c.lease),
		sender: lock.NewSender(pool, NotifyChannel, c.lease.Length)}
	n.monitor = newHealthMonitor(c.check, c.healthPolicy, func(cause error) {
		n.report(context.Background(), hooks.Failure{Op: hooks.OpHealth, Err: cause})
	})
	return n
}

func (n *candidate) lockConfig() lock.Config {
	return lock.Config{Election: n.election, Key: n.key, Look: n.announcer.seesLeader, Retry: n.retry, TokenEpoch: n.tokenEpoch,
		Sit: n.standby != Poll, SitInside: n.sitsInside(), RetryInside: n.retryInside, Wait: n.standby == Wait, Interval: n.deputyInterval}
}

// retryEvery is the retry interval in force.
func (n *candidate) retryEvery() time.Duration {
	if n.inTransaction() {
		return n.retryInside
	}
	return n.retry
}

// report posts a failure, and does not wait for the hooks.
func (n *candidate) report(ctx context.Context, f hooks.Failure) {
	n.announcer.post(n.announcer.failure(ctx, f))
}

// look asks who leads, if a hook wants to know.
func (n *candidate) look(ctx context.Context) {
	if !n.announcer.seesLeader() {
		return
	}
	leader, led, err := lock.HolderOf(ctx, n.pool, n.key, n.lease.Length)
	if !led {
		leader = nobody
	}
	if err == nil {
		n.saw(ctx, leader)
	}
}

// nobody leads.
var nobody lock.Holder

// A sighting is a leader, and when it last was known to lead.
type sighting struct {
	candidateID string
	at          time.Time
}

// sees remembers a leader for LastLeader, unless one was seen later.
func (n *candidate) sees(candidateID string, at time.Time) {
	for {
		before := n.last.Load()
		if before != nil && at.Before(before.at) || n.last.CompareAndSwap(before, &sighting{candidateID, at}) {
			return
		}
	}
}

// saw reports a leader other than the last one seen.
func (n *candidate) saw(ctx context.Context, leader lock.Holder) {
	if leader.PID != 0 {
		n.sees(leader.CandidateID, time.Now())
	}
	leader = lock.Holder{PID: leader.PID, CandidateID: leader.CandidateID} // all that an attempt sees
	if !n.announcer.seesLeader() || n.seen == leader {
		return
	}
	n.announcer.post(n.announcer.leaderChanged(ctx, hooks.LeaderChanged{Previous: n.seen.CandidateID, Current: leader.CandidateID, PID: leader.PID}))
	n.seen = leader
}

// work counts what goes on: under a term lead, the functions of RunIfLeader and OnElected,
// so that the lock is released only after all of it has returned; under a Session the
// attempts and terms, which its Close waits for.
type work struct {
	mu     sync.Mutex
	n      int
	ended  bool
	idle   chan struct{}  // closed once ended and nothing goes on
	trials sync.WaitGroup // of work that counts, and may not begin
}

func newWork() *work { return &work{idle: make(chan struct{})} }

// begin reports whether more work may begin; if so, finish must follow. It calls valid once
// the work counts, and without the lock: a process that stands still there blocks nobody.
func (w *work) begin(valid func() bool) bool {
	w.mu.Lock()
	if w.ended {
		w.mu.Unlock()
		return false
	}
	w.n++
	w.trials.Add(1)
	defer w.trials.Done()
	w.mu.Unlock()
	if !valid() {
		w.finish()
		return false
	}
	return true
}

func always() bool { return true }

func (w *work) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n--
	w.settle()
}

// end lets no more work begin.
func (w *work) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.settle()
}

func (w *work) settle() {
	if !w.ended || w.n > 0 {
		return
	}
	select {
	case <-w.idle:
	default:
		close(w.idle)
	}
}

// isIdle reports, after end, whether all work has returned. It waits until none may begin.
func (w *work) isIdle() bool {
	w.trials.Wait()
	select {
	case <-w.idle:
		return true
	default:
		return false
	}
}

// An event is what a notification says of its election.
type event string

const (
	eventFree      event = "free"
	eventLed       event = "led"
	eventSuccessor event = "successor"
	eventRequest   event = "request"
)

// notifyPatience is how long a release, an offer or a request waits until its notification is
// sent.
const notifyPatience = time.Second

// payload writes a notification about an election.
func payload(what event, key int64, more ...string) string {
	return strings.Join(append([]string{string(what), strconv.FormatInt(key, 10)}, more...), " ")
}

// parse reads a payload. ours is whether it is about the election of that key.
func parse(payload string, key int64) (what event, id string, ours bool) {
	first, rest, _ := strings.Cut(payload, " ")
	number, id, _ := strings.Cut(rest, " ")
	return event(first), id, number == strconv.FormatInt(key, 10)
}

// subscribe calls wake for each notification about the election that matters, and when some
// may have been missed.
func (n *candidate) subscribe(wake func(), matters func(what event, id string) bool) (unsubscribe func()) {
	if n.notifier == nil {
		return func() {}
	}
	var stop func()
	n.guarded(func() {
		stop = n.notifier.Subscribe(func(payload string) {
			if what, id, ours := parse(payload, n.key); payload == "" || ours && matters(what, id) {
				wake()
			}
		})
	})
	return func() {
		if stop != nil {
			n.guarded(stop)
		}
	}
}

// guarded makes a call of the notifier, and reports a panic.
func (n *candidate) guarded(call func()) {
	if err := backoff.Guard(call); err != nil {
		err = fmt.Errorf("elector: the notifier panicked: %w", err)
		n.announcer.post(n.announcer.failure(context.Background(), hooks.Failure{Op: hooks.OpHook, Err: err}))
	}
}

// sleep waits for d, a wake-up, or the end of ctx.
func sleep(ctx context.Context, d time.Duration, w *lock.WakeUps) {
	if d > 0 && !w.Sleep(ctx, d) {
		w.Renew()
	}
}

// await waits for done until ctx ends. It reports whether done is closed, whatever ctx says.
func await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// An announcer calls the hooks, one at a time and in order, on a goroutine that ends when
// the queue is empty.
type announcer struct {
	origin hooks.Origin
	hooks  atomic.Pointer[hookSet]

	calling  atomic.Pointer[hookCall] // of the queue; nil between two calls
	patience time.Duration            // after which a hook is reported

	mu      sync.Mutex // also of those who replace hooks
	queue   []announcement
	emptied chan struct{} // closed when the queue is empty; nil if it is
	closed  bool          // the queue takes no more
}

type announcement struct {
	call      func()
	heartbeat bool            // may be replaced by a newer one
	term      context.Context // of what is dropped once the term has ended; nil otherwise
	last      bool            // nothing may follow
}

func newAnnouncer(origin hooks.Origin, all []hooks.Hook, l lease.Lease) *announcer {
	a := &announcer{origin: origin, patience: max(l.Drain, l.Heartbeat)}
	a.hooks.Store(newHookSet(register(all)))
	return a
}

// seesLeader reports whether any hook wants OnLeaderChanged.
func (a *announcer) seesLeader() bool { return a.hooks.Load().seesLeader }

// post queues an announcement.
func (a *announcer) post(call func()) { a.enqueue(announcement{call: call}) }

// announce queues an announcement and waits until the hooks have returned.
func (a *announcer) announce(call func()) {
	done := make(chan struct{})
	a.post(func() {
		defer close(done)
		call()
	})
	<-done
}

func (a *announcer) enqueue(n announcement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || n.term != nil && n.term.Err() != nil { // its OnDemoted may have been the last event
		return
	}
	a.closed = n.last
	if last := len(a.queue) - 1; n.heartbeat && last >= 0 && a.queue[last].heartbeat {
		a.queue[last] = n
		return
	}
	a.queue = append(a.queue, n)
	if a.emptied == nil {
		a.emptied = make(chan struct{})
		go a.drain()
	}
}

func (a *announcer) drain() {
	empty := false
	defer func() {
		if !empty { // a hook ended its goroutine, as a test that fails does (runtime.Goexit)
			go a.drain()
		}
	}()
	for {
		a.mu.Lock()
		if len(a.queue) == 0 {
			close(a.emptied)
			a.emptied = nil
			a.mu.Unlock()
			empty = true
			return
		}
		next := a.queue[0]
		a.queue = a.queue[1:]
		a.mu.Unlock()
		next.call()
	}
}

// flush waits until the queue is empty.
func (a *announcer) flush() {
	a.mu.Lock()
	emptied := a.emptied
	a.mu.Unlock()
	if emptied != nil {
		<-emptied
	}
}

// A hookCall is a call of a hook that goes on.
type hookCall struct {
	of       *registration
	method   string
	returned chan struct{}
}

func (c *hookCall) String() string { return fmt.Sprintf("%s of %T", c.method, c.of.hook) }

// busy says which hook is being called, for an error of a wait.
func (a *announcer) busy() string {
	if c := a.calling.Load(); c != nil {
		return fmt.Sprintf(" (%v goes on)", c)
	}
	return ""
}

// calls records a call by the queue until returned is called. It reports one that does not
// return, but for OnElected, which is work of the term.
func (a *announcer) calls(of *registration, method string) (returned func()) {
	c := &hookCall{of, method, make(chan struct{})}
	began, reported := time.Now(), make(chan struct{})
	a.calling.Store(c)
	report := time.AfterFunc(a.patience, func() {
		defer close(reported)
		again, cancel := context.WithTimeout(context.Background(), a.patience/4) // the process may have stood still
		defer cancel()
		if await(again, c.returned) || method == "OnElected" {
			return
		}
		_ = backoff.Guard(a.beside(again, hooks.Failure{Op: hooks.OpHook, Returned: c.returned, Err: fmt.Errorf(
			"elector: %v has not returned for %v: until it does, no hook is called, this candidate does not campaign, and a term that ends keeps its lock, "+
				"so that nobody else can lead: make it return, or restart the process", c, time.Since(began).Round(time.Millisecond))}))
	})
	return func() {
		a.calling.Store(nil)
		close(c.returned)
		if !report.Stop() {
			<-reported
		}
	}
}

// beside makes a report that bypasses the queue. The hook that the queue calls receives it last,
// and not at all if its OnError does not return soon.
func (a *announcer) beside(ctx context.Context, f hooks.Failure) func() {
	f.Origin, f.At = a.origin, time.Now()
	report := func(h hooks.ErrorHook) { h.OnError(context.WithoutCancel(ctx), f) }
	return func() {
		all, c := slices.Clone(a.hooks.Load().all), a.calling.Load()
		if i := slices.IndexFunc(all, func(r *registration) bool { return c != nil && r == c.of }); i >= 0 {
			all = slices.Delete(all, i, i+1)
			defer func() {
				soon, cancel := context.WithTimeout(context.Background(), a.patience)
				defer cancel()
				if c.method != "OnError" || await(soon, c.returned) {
					tell(nil, []*registration{c.of}, report, a.panicked)
				}
			}()
		}
		tell(nil, all, report, a.panicked)
	}
}

// tell calls each hook that receives H, in order and each guarded by itself: one that panics,
// or ends its goroutine as a test that fails does, keeps the event from no other. queue is nil
// if another than the queue calls.
func tell[H any](queue *announcer, all []*registration, call func(H), panicked func(error)) {
	if len(all) == 0 {
		return
	}
	defer tell(queue, all[1:], call, panicked)
	defer func() {
		if p := recover(); p != nil {
			panicked(fmt.Errorf("%w: %v\n%s", errHookPanicked, p, debug.Stack()))
		}
	}()
	if h, ok := all[0].hook.(H); ok && !all[0].removed.Load() { // perhaps removed by the hook before
		if queue != nil {
			defer queue.calls(all[0], reflect.TypeFor[H]().Method(0).Name)()
		}
		call(h)
	}
}

// panicked reports a panic of a hook. If OnError panics at that, nobody is left to report to.
func (a *announcer) panicked(err error) {
	f := hooks.Failure{Origin: a.origin, Op: hooks.OpHook, Err: err, At: time.Now()}
	tell(nil, a.hooks.Load().all, func(h hooks.ErrorHook) { h.OnError(context.Background(), f) }, func(error) {})
}

// Each of the following makes the announcement of one event.

// elected calls end with a panic at once: a later hook may work until the term ends.
func (a *announcer) elected(ctx context.Context, e hooks.Elected, end func(error)) func() {
	e.Origin = a.origin
	return func() {
		all := a.hooks.Load().all
		for _, r := range all {
			r.elected = true
		}
		tell(a, all, func(h hooks.ElectedHook) { h.OnElected(ctx, e) }, func(err error) {
			end(err)
			a.panicked(err)
		})
	}
}

func (a *announcer) demoted(ctx context.Context, d hooks.Demoted) func() {
	d.Origin = a.origin
	return func() {
		tell(a, a.hooks.Load().toDemote(), func(h hooks.DemotedHook) { h.OnDemoted(context.WithoutCancel(ctx), d) }, a.panicked)
	}
}

func (a *announcer) failure(ctx context.Context, f hooks.Failure) func() {
	f.Origin, f.At = a.origin, time.Now()
	return func() {
		tell(a, a.hooks.Load().all, func(h hooks.ErrorHook) { h.OnError(context.WithoutCancel(ctx), f) }, a.panicked)
	}
}

func (a *announcer) campaign(ctx context.Context, c hooks.Campaign) func() {
	c.Origin, c.At = a.origin, time.Now()
	return func() {
		tell(a, a.hooks.Load().all, func(h hooks.CampaignHook) { h.OnCampaign(context.WithoutCancel(ctx), c) }, a.panicked)
	}
}

func (a *announcer) leaderChanged(ctx context.Context, c hooks.LeaderChanged) func() {
	c.Origin, c.At = a.origin, time.Now()
	return func() {
		tell(a, a.hooks.Load().all, func(h hooks.LeaderChangedHook) { h.OnLeaderChanged(context.WithoutCancel(ctx), c) }, a.panicked)
	}
}

// close announces OnClosed, and waits for it and for what was queued before. A failure that
// is reported later is dropped.
func (a *announcer) close() {
	c := hooks.Closed{Origin: a.origin, At: time.Now()}
	a.enqueue(announcement{last: true, call: func() { a.tellClosed(a.hooks.Load().all, c) }})
	a.flush()
}

// tellClosed tells each hook. Those that were told hear of no panic of a later one.
func (a *announcer) tellClosed(all []*registration, c hooks.Closed) {
	if len(all) == 0 {
		return
	}
	defer a.tellClosed(all[1:], c)
	tell(a, all[:1], func(h hooks.ClosedHook) {
		all[0].removed.Store(true)
		h.OnClosed(context.Background(), c)
	}, a.panicked)
}

// heartbeat never waits: a slow hook must not cost the lease.
func (a *announcer) heartbeat(ctx context.Context, h hooks.Heartbeat) {
	if !a.hooks.Load().seesHeartbeat {
		return
	}
	h.Origin, h.At = a.origin, time.Now()
	a.enqueue(announcement{heartbeat: true, term: ctx, call: func() {
		tell(a, a.hooks.Load().all, func(hook hooks.HeartbeatHook) { hook.OnHeartbeat(context.WithoutCancel(ctx), h) }, a.panicked)
	}})
}

// AddHooks adds hooks while the elector may run. They receive the events from now on, after
// those that were there before. They receive no OnDemoted for a term that began before,
// because they have not received its OnElected. remove removes them: after it has returned, no
// new call to them begins, except one that another goroutine was just about to make. Neither
// waits for a hook, so a hook may call them.
func (e *Elector) AddHooks(all ...hooks.Hook) (remove func(), err error) {
	for i, h := range all {
		if err := hooks.Check(h); err != nil {
			return nil, fmt.Errorf("%w: AddHooks: hook %d: %w", ErrConfig, i+1, err)
		}
	}
	return e.announcer.add(all), nil
}

// A hookSet is the hooks at one time. It is replaced as a whole, so no event takes a lock.
type hookSet struct {
	all           []*registration
	seesHeartbeat bool // whether any hook wants it
	seesLeader    bool
}

// A registration is a hook and whether it has received OnElected of the last term, which only
// the hooks' queue touches.
type registration struct {
	hook    hooks.Hook
	elected bool
	removed atomic.Bool
}

func newHookSet(all []*registration) *hookSet {
	s := &hookSet{all: all}
	for _, r := range all {
		s.seesHeartbeat = s.seesHeartbeat || hooks.Wants[hooks.HeartbeatHook](r.hook)
		s.seesLeader = s.seesLeader || hooks.Wants[hooks.LeaderChangedHook](r.hook)
	}
	return s
}

// register registers each hook, also those inside a Join, by itself.
func register(all []hooks.Hook) (registered []*registration) {
	for _, h := range all {
		if joined, ok := h.(interface{ Unwrap() []hooks.Hook }); ok {
			registered = append(registered, register(joined.Unwrap())...)
		} else {
			registered = append(registered, &registration{hook: h})
		}
	}
	return registered
}

// toDemote returns the hooks that have received OnElected.
func (s *hookSet) toDemote() (told []*registration) {
	for _, r := range s.all {
		if r.elected {
			told = append(told, r)
		}
		r.elected = false
	}
	return told
}

func (a *announcer) add(all []hooks.Hook) (remove func()) {
	added := register(all)
	a.change(func(now []*registration) []*registration { return append(now, added...) })
	return sync.OnceFunc(func() {
		for _, r := range added {
			r.removed.Store(true)
		}
		a.change(func(now []*registration) []*registration {
			return slices.DeleteFunc(now, func(r *registration) bool { return slices.Contains(added, r) })
		})
	})
}

func (a *announcer) change(how func([]*registration) []*registration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hooks.Store(newHookSet(how(slices.Clone(a.hooks.Load().all))))
}
