package promotion

import (
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgelector/pgelector/db"
)

// An identity distinguishes a server from others, above all from its promoted standby.
type identity struct{ db.IdentifyRow }

func (i identity) isStandby() bool { return i.Timeline == 0 }

// isOlderThan reports whether the other is the same cluster after a promotion.
func (i identity) isOlderThan(other identity) bool {
	return i.System == other.System && !i.isStandby() && i.Timeline < other.Timeline
}

// String is for error messages.
func (i identity) String() string {
	at := ""
	if i.Host != "" {
		at = " at " + net.JoinHostPort(i.Host, strconv.Itoa(int(i.Port)))
	}
	if i.isStandby() {
		return "a standby" + at
	}
	return fmt.Sprintf("timeline %d%s", i.Timeline, at)
}

// A newest is the newest primary that was seen beside an older one. A candidate that has
// seen it must not be elected on the older one, to which its pool may still lead. A cluster
// can also return to an older timeline (from a backup), so the ban ends when the newest has
// not been seen for a while.
type newest struct {
	granted atomic.Int64 // the timeline of the last lock that this candidate was granted; 0 if none

	mu   sync.Mutex
	seen identity
	at   time.Time
}

func (n *newest) saw(i identity) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen, n.at = i, time.Now()
}

// still records when a session was last on the newest primary, or on one that has replaced it.
func (n *newest) still(own *identity, at time.Time) {
	if own == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if own.System == n.seen.System && own.Timeline >= n.seen.Timeline && at.After(n.at) {
		n.seen, n.at = *own, at
	}
}

// within returns the newest primary if it was seen within that time.
func (n *newest) within(d time.Duration) (seen identity, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen, time.Since(n.at) < d
}
