package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/pgelector/pgelector/db"
)

var (
	// errUnacknowledged is of a commit that proves nothing, on a connection that works.
	errUnacknowledged = errors.New("elector: the synchronous standbys have not acknowledged a commit")

	// errElsewhere is of a connection that does not see the session's lock.
	errElsewhere = errors.New("elector: the connection for commits leads to another server than the session's, or the session has ended")
)

// An acknowledgement is the answer to a commit, what the server said of its standbys right
// after, and how long the answer took.
type acknowledgement struct {
	commit db.CommitSynchronouslyRow
	now    replication
	took   time.Duration
}

// check returns nil if every standby that may be promoted has acknowledged the commit. The
// server answers a cancelled wait like one that has ended well. A role that may see how far
// the standbys are notices that; any other counts no answer that took longer than longest.
func (a acknowledgement) check(longest time.Duration) error {
	not := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", errUnacknowledged, fmt.Sprintf(format, args...))
	}
	switch {
	case a.now.Pid != a.commit.Pid:
		return fmt.Errorf("%w: backend %d was asked for a commit, then %d answered", ErrSessionPooled, a.commit.Pid, a.now.Pid)
	case a.commit.Outcome == "waiting":
		return not("an earlier one of this election still waits for them")
	case a.commit.Outcome != "committed":
		return errElsewhere
	}
	listed, err := ListedStandbys(a.now.StandbyNames)
	if err != nil {
		return err
	}
	if a.commit.StandbyNames != a.now.StandbyNames || a.commit.Loaded != a.now.Loaded {
		return not("the server's configuration was reloaded meanwhile")
	}
	if err := checkAlone(listed, a.now.senders); err != nil {
		return not("%v", err)
	}
	for _, name := range listed {
		for _, one := range named(a.now.senders, name) {
			if one.Behind {
				return not("standby %q has not got it, although the server has answered: somebody has cancelled the wait", name)
			}
		}
	}
	if a.took > longest {
		return not("the answer took %v, and counts only within %v: somebody may have cancelled the wait", a.took.Round(time.Millisecond), longest)
	}
	return nil
}
