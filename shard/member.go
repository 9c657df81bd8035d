package shard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/internal/backoff"
	"github.com/pgelector/pgelector/internal/pgerr"
)

const (
	settle    = 500 * time.Millisecond // from its first seat until a member claims shards: others may be starting too
	returns   = 2 * time.Second        // for how long a member that lost its session counts those that it knew: they may have lost theirs
	rest      = time.Second            // before a shard is led again whose work has returned
	maxPause  = time.Second / 2        // between two looks at the shards while none is free
	unhurried = 10                     // members that count at the interval; more of them wait longer
	race      = 5 * time.Millisecond   // within this, attempts that began together fail together
)

// errMoved is the cause of a run whose shard is given up.
var errMoved = errors.New("shard: moved to another member, or gone from the set")

// A member is one Run. Its one goroutine decides; the others look, hold the seat, and lead.
type member struct {
	config
	group   string
	pool    *sql.DB
	session *elector.Session
	set     *Set
	lead    Lead

	seatKeys []int64
	names    []string // of the shards
	changed  <-chan struct{}

	seat     *seat
	twin     bool              // another live member has this one's id
	joined   chan struct{}     // receives when the seat is taken
	settled  time.Time         // when the first claim may be made; zero before the first seat
	members  map[int]time.Time // the seats seen, and until when they count
	seats    []int             // those that count, in order
	present  []int             // those of them that the last look saw taken
	reported int               // how many shards WithBeyond was told of
	taken    int               // how many seats the last look saw taken, also if this member has none
	share    int               // how many shards this member may lead
	looking  bool
	looked   bool        // at least once: the server has answered
	seen     time.Time   // when the last look succeeded or, if later, the seat was taken
	answered atomic.Bool // the last attempt to take a seat
	surveys  chan survey
	pause    time.Duration // between two looks at the shards
	lookAt   time.Time     // when to look at the shards again
	counting *time.Timer

	electors map[string]*elector.Elector // of the shards in the set that this member has ever tried to lead
	running  map[string]*run
	resting  map[string]time.Time // until when
	ended    chan *run
	elected  int // runs so far
}

// A seat is one campaign for a seat.
type seat struct {
	number  int
	elector *elector.Elector
	missed  int       // counts in a row that saw it taken by the same
	holder  int32     // the backend that has it, if that is an older session of this member
	since   time.Time // when that was first asked
	stop    context.CancelCauseFunc
	done    chan error
}

// A run is one attempt to lead a shard, and the term that follows.
type run struct {
	shard    string
	order    int
	stopping bool
	stop     context.CancelCauseFunc
	elected  bool
	failed   bool // or the work returned by itself
}

func newMember(group string, pool *sql.DB, session *elector.Session, set *Set, lead Lead, c config) *member {
	m := &member{config: c, group: group, pool: pool, session: session, set: set, lead: lead,
		seatKeys: seatKeys(group), joined: make(chan struct{}, 1), members: map[int]time.Time{}, surveys: make(chan survey, 1),
		electors: map[string]*elector.Elector{}, running: map[string]*run{}, resting: map[string]time.Time{}, ended: make(chan *run)}
	m.names, m.changed = set.now()
	m.pause = m.interval
	return m
}

// run takes a seat and balances until ctx ends or the seat cannot be held, and then waits
// for all that it began.
func (m *member) run(ctx context.Context, cancel context.CancelCauseFunc) (err error) {
	m.counting = time.NewTimer(backoff.AtOnce)
	defer m.counting.Stop()
	for err == nil {
		select {
		case <-m.counting.C:
			m.count(ctx)
		case s := <-m.surveys:
			m.looking = false
			if s.err == nil {
				m.looked, m.seen = true, time.Now()
			}
			m.learn(ctx, s)
			err = m.sit(ctx, s)
			m.claim(ctx, s.free)
			m.report(ctx, s)
			m.counting.Reset(m.wait())
		case <-m.joined:
			m.settleIn()
		case r := <-m.ended:
			m.end(r)
		case <-m.changed:
			m.replace()
		case err = <-m.seatDone():
			m.seat = nil
		case <-ctx.Done():
			err = fmt.Errorf("shard: lead the shards of %q: %w", m.group, pgerr.Wrap(ctx.Err(), context.Cause(ctx)))
		}
		m.giveUp()
	}
	cancel(err)
	if m.seat != nil {
		<-m.seat.done
	}
	for len(m.running) > 0 {
		m.end(<-m.ended)
	}
	if m.looking {
		select {
		case <-m.surveys:
		case <-time.After(surveyTimeout): // the driver has not returned
		}
	}
	return err
}

// wait is the time until the next count.
func (m *member) wait() time.Duration {
	d := m.pace()
	return d - rand.N(d/4+1)
}

// pace is the longest time between two counts.
func (m *member) pace() time.Duration {
	return m.interval * time.Duration(max(unhurried, m.taken)) / unhurried
}

// count looks at the seats, and at the shards if there is room for more. It does not wait:
// a driver may not return.
func (m *member) count(ctx context.Context) {
	if m.looking {
		return
	}
	direct, patience := m.isJoined(), surveyTimeout // its session has been checked
	switch {
	case direct && !m.looked:
		patience = firstTimeout
	case !direct && m.seat != nil && !m.answered.Load(): // WithBackoff paces the attempts
		m.counting.Reset(m.wait())
		return
	}
	m.looking = true
	var wanted []string
	if (m.room() > 0 || m.beyondAll() != m.reported) && !time.Now().Before(m.lookAt) {
		wanted = m.wanted()
	}
	candidate := ""
	if m.sticky > 0 && !direct {
		candidate = m.session.CandidateID()
	}
	go backoff.Apart(func() {
		ctx, stop := backoff.Detach(ctx)
		defer stop()
		m.surveys <- look(ctx, m.pool, patience, direct, m.group, m.seatKeys, candidate, wanted)
	})()
	if len(wanted) > 0 {
		m.lookAt = time.Now().Add(m.pause)
		m.pause = min(m.pause+m.pause/4, maxPause) // until some are free
	}
}

// lookSoon makes the next count look at the shards too.
func (m *member) lookSoon() { m.pause, m.lookAt = m.interval, time.Time{} }

// learn updates which members count. It ignores a survey while this member has no seat,
// because the others may have lost theirs too, and a survey without this member's own seat,
// which was of another server.
func (m *member) learn(ctx context.Context, s survey) {
	if s.err == nil {
		m.taken = len(s.seats)
	}
	if s.err != nil || !m.isJoined() || !slices.Contains(s.seats, m.seat.number) {
		return
	}
	now := time.Now()
	m.present = s.seats
	for _, seat := range s.seats {
		if until := now.Add(m.sticky); until.After(m.members[seat]) {
			m.members[seat] = until
		}
	}
	var seats []int
	for seat, until := range m.members {
		switch {
		case slices.Contains(s.seats, seat) || until.After(now):
			seats = append(seats, seat)
		default:
			delete(m.members, seat)
		}
	}
	slices.Sort(seats)
	changed := !slices.Equal(seats, m.seats)
	m.seats = seats
	m.reckon()
	if changed {
		m.lookSoon()
		m.count(ctx)
	}
}

// reckon sets this member's share. An absent member that still counts keeps the share from growing, but
// does not make it shrink: members that joined meanwhile do not count the absent one, so nobody would
// have room for the shards that this member gives up. The share is never larger than without the absent
// member, so that there are shards for all shares.
func (m *member) reckon() {
	if !m.isCounted() {
		return
	}
	least, _ := quota(len(m.names), m.seats, m.seat.number)
	most, _ := quota(len(m.names), m.present, m.seat.number)
	m.share = min(max(m.share, least), most)
}

// replace takes the new set over. This member may go on to lead what is left of its shards. For the
// shards that are gone it takes none of an absent member's.
func (m *member) replace() {
	m.names, m.changed = m.set.now()
	for name, r := range m.running {
		if !m.exists(name) && !r.stopping {
			m.share = max(0, m.share-1)
		}
	}
	m.reckon()
	for name := range m.electors {
		m.closeGone(name)
	}
	m.lookSoon()
}

// sit campaigns for a free seat, unless this member has one. If no server has ever answered it
// takes any seat, so that its campaign reports that, waits and gives up as any other does. Within
// WithSticky it waits, for two leases at most, for a seat that its earlier session still holds, because
// the server has not ended that session yet. A member whose looks fail for long gives its seat up: it
// claims nothing, and others count it.
func (m *member) sit(ctx context.Context, s survey) error {
	if m.isJoined() {
		if blind := time.Since(m.seen); s.err != nil && blind > max(firstTimeout, 2*m.pace()) { // more than one has failed
			m.leave(fmt.Errorf("shard: no look at the seats and shards has succeeded for %v: %w", blind.Round(time.Second), s.err))
		}
		return nil
	}
	if s.err != nil && m.looked {
		return nil
	}
	if m.seat != nil && !m.losesPatience(s) {
		return nil
	}
	if m.seat != nil {
		m.leave(errMoved)
	}
	number := firstFree(m.session.CandidateID(), s.seats)
	for _, seat := range s.seats {
		if s.own[seat] != 0 && !m.twin {
			number = seat
			break
		}
	}
	if number < 0 {
		return nil
	}
	e, err := m.session.Elector(seatElection(m.group, number), elector.WithHooks(hooks.Funcs{
		Campaign: func(_ context.Context, c hooks.Campaign) { m.answered.Store(c.Outcome != hooks.Failed) }}))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	m.seat = &seat{number: number, elector: e, stop: stop, done: make(chan error, 1)}
	done := m.seat.done
	go func() {
		err := e.Run(ctx, func(ctx context.Context, _ *elector.Term) error {
			select {
			case m.joined <- struct{}{}:
			default:
			}
			<-ctx.Done()
			return nil
		})
		stop(nil)
		_ = e.Close(context.Background())
		done <- err
	}()
	return nil
}

// losesPatience reports whether to campaign for another seat: this one is another member's.
func (m *member) losesPatience(s survey) bool {
	if !slices.Contains(s.seats, m.seat.number) {
		m.seat.missed = 0
		return false
	}
	if holder := s.own[m.seat.number]; holder != m.seat.holder { // and that one may be about to go
		m.seat.holder, m.seat.since, m.seat.missed = holder, s.asked, 0
	}
	if m.seat.missed++; m.seat.missed < 3 { // the first may have seen it as it was taken
		return false
	}
	if m.seat.holder != 0 && !m.twin {
		m.twin = s.asked.Sub(m.seat.since) > 2*m.seat.elector.Settings().Lease // the server may have stood still
		return m.twin
	}
	return true
}

// leave gives the seat up, or the campaign for it.
func (m *member) leave(why error) {
	m.seat.stop(why)
	<-m.seat.done
	m.seat = nil
}

// isSick reports whether the check of health, which the seat runs, wants no work here.
func (m *member) isSick() bool {
	if m.seat == nil {
		return false
	}
	h := m.seat.elector.Health()
	return !h.Healthy && !h.At.IsZero()
}

func (m *member) isJoined() bool { return m.seat != nil && m.seat.elector.IsLeader() }

// isCounted reports whether this member has seen itself on its seat.
func (m *member) isCounted() bool { return m.isJoined() && slices.Contains(m.present, m.seat.number) }

func (m *member) seatDone() <-chan error {
	if m.seat == nil {
		return nil
	}
	return m.seat.done
}

// settleIn follows each election to the seat. After a loss, all members that were known
// count for a while.
func (m *member) settleIn() {
	now := time.Now()
	m.seen, m.twin = now, false
	if m.seat != nil {
		m.seat.missed = 0
	}
	if m.settled.IsZero() {
		m.settled = now.Add(settle)
	} else {
		for seat, until := range m.members {
			if back := now.Add(returns); back.After(until) {
				m.members[seat] = back
			}
		}
	}
	m.lookSoon()
	m.counting.Reset(backoff.AtOnce)
}

// room is how many more shards this member may lead. Those that are gone from the set do not count:
// their work may hang, and nobody else has room in this one's place.
func (m *member) room() int {
	if !m.isCounted() || m.settled.IsZero() || time.Now().Before(m.settled) {
		return 0
	}
	room := m.share
	for name := range m.running {
		if m.exists(name) {
			room--
		}
	}
	if m.most > 0 {
		room = min(room, m.most-len(m.running)) // also those that are gone from the set
	}
	return room
}

// wanted lists the shards that this member may claim.
func (m *member) wanted() (names []string) {
	now := time.Now()
	for _, name := range m.names {
		if m.running[name] == nil && !m.resting[name].After(now) {
			delete(m.resting, name)
			names = append(names, name)
		}
	}
	return names
}

// claim tries to lead as many free shards as there is room for. Every member begins at its
// own part of them, so that two rarely claim the same.
func (m *member) claim(ctx context.Context, free []string) {
	room := min(m.room(), len(free))
	if room <= 0 {
		return
	}
	_, start := quota(len(free), m.seats, m.seat.number)
	for i := range room {
		name := free[(start+i)%len(free)]
		if m.running[name] == nil && m.exists(name) {
			m.begin(ctx, name)
			m.lookSoon()
		}
	}
}

func (m *member) exists(name string) bool {
	_, found := slices.BinarySearch(m.names, name)
	return found
}

func (m *member) begin(ctx context.Context, name string) {
	ctx, stop := context.WithCancelCause(ctx)
	m.elected++
	r := &run{shard: name, order: m.elected, stop: stop, failed: true}
	m.running[name] = r
	e, err := m.elector(name)
	go func() {
		defer func() { // also if lead ends its goroutine
			stop(nil)
			m.ended <- r
		}()
		if err == nil {
			m.tryRun(ctx, e, r)
		}
	}()
}

// elector returns the elector of a shard. It stays open between two attempts, so that hooks
// know the shard as long as the set has it.
func (m *member) elector(name string) (e *elector.Elector, err error) {
	if e = m.electors[name]; e != nil {
		return e, nil
	}
	if e, err = m.session.Elector(Election(m.group, name), elector.WithHealth(nil, elector.HealthPolicy{})); err == nil {
		m.electors[name] = e
	}
	return e, err
}

// closeGone closes the elector of a shard that is gone from the set. One that comes back at
// once may be refused until the hooks have returned, and is tried again later.
func (m *member) closeGone(name string) {
	e := m.electors[name]
	if e == nil || m.running[name] != nil || m.exists(name) {
		return
	}
	delete(m.electors, name)
	delete(m.resting, name)
	go func() { _ = e.Close(context.Background()) }() // which the session waits for
}

// tryRun leads a shard if it is free.
func (m *member) tryRun(ctx context.Context, e *elector.Elector, r *run) {
	var err error
	r.elected, err = e.TryRun(ctx, func(ctx context.Context, t *elector.Term) error { return m.lead(ctx, r.shard, t) })
	lost := errors.Is(err, elector.ErrSessionLost) || errors.Is(err, elector.ErrLeaseExpired)
	r.failed = (r.elected || err != nil) && !lost && ctx.Err() == nil
}

// end leaves a shard alone for some time, unless its term was lost or ended here. If another
// member was faster, others may be free.
func (m *member) end(r *run) {
	delete(m.running, r.shard)
	switch now := time.Now(); {
	case r.failed:
		m.resting[r.shard] = now.Add(rest)
	case !r.elected && !r.stopping:
		m.resting[r.shard] = now.Add(m.interval)
		m.lookSoon()
		m.counting.Reset(race)
	}
	m.closeGone(r.shard)
}

// giveUp ends the runs of shards that are gone, those above this member's share, the newest
// first, a few at a time, and all while it is unhealthy.
func (m *member) giveUp() {
	moving, sick := 0, m.isSick()
	var kept []*run
	for name, r := range m.running {
		switch {
		case r.stopping && m.exists(name):
			moving++
		case !m.exists(name) || sick:
			r.end()
		default:
			kept = append(kept, r)
		}
	}
	if !m.isCounted() || len(kept) <= m.share {
		return
	}
	slices.SortFunc(kept, func(a, b *run) int { return b.order - a.order })
	for _, r := range kept[:max(0, min(len(kept)-m.share, m.moves-moving))] {
		r.end()
	}
}

func (r *run) end() {
	r.stopping = true
	r.stop(errMoved)
}
