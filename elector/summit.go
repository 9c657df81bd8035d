package elector

import (
	"database/sql"
	"runtime"
	"sync"
	"weak"

	"github.com/pgelector/pgelector/internal/election"
)

// A summit is the highest timeline that the candidates of one pool have met: they were granted a lock on
// it, or ErrOldPrimary named it. A cluster that has returned to an older timeline gives smaller tokens.
type summit struct {
	mu       sync.Mutex
	timeline int64 // the highest
	sum      int64 // the highest of a timeline and the epoch of the database then
	epoch    int64 // of the database, as the last token shows; 0 if none has shown it
}

// summits has the summit of each pool, which goes with the pool.
var summits sync.Map // of *summit by weak.Pointer[sql.DB]

func summitOf(pool *sql.DB) *summit {
	key := weak.Make(pool)
	s, known := summits.LoadOrStore(key, &summit{})
	if !known {
		runtime.AddCleanup(pool, func(key weak.Pointer[sql.DB]) { summits.Delete(key) }, key)
	}
	return s.(*summit)
}

// meet notes a timeline; 0 is none.
func (s *summit) meet(timeline int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(timeline)
}

func (s *summit) note(timeline int64) {
	if timeline > 0 {
		s.timeline, s.sum = max(s.timeline, timeline), max(s.sum, timeline+s.epoch)
	}
}

// granted notes the token of a lock that was granted on a timeline, and returns the least token of a
// leader on the highest timeline that was met before. own is the epoch of WithTokenEpoch: the token has
// the larger of own and the database's epoch.
func (s *summit) granted(token, timeline, own int64) (least int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timeline > 0 {
		least = max(s.sum, s.timeline+own) << election.TimelineShift
	}
	if epoch := token>>election.TimelineShift - timeline; epoch > own || own == 0 { // else the database's may be smaller
		s.epoch = epoch
	}
	s.note(timeline)
	return least
}
