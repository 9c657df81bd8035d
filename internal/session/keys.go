package session

import (
	"fmt"

	"github.com/pgelector/pgelector/internal/lockkey"
)

// SeatKey is the key of an election's seats, which are locks of two integers. The other seat
// differs in the lowest bit.
func SeatKey(key int64) int64 { return lockkey.Of("seat", key) }

// By locks of two integers a session tells others about itself: [db.TryLock] documents them.
const (
	leaseClass       = 318473925  // the second integer is the lease in milliseconds
	leaseClassInside = 1530767677 // the same, in transaction scope
	sinceClass       = 521961639  // the second is the time at which the term began, in seconds
)

// OfferKey is the key of the lock of two integers by which a leader offers its lock to a candidate.
func OfferKey(candidateID string, key int64) int64 {
	return lockkey.OfText(fmt.Sprintf("pgelector offer:%d:%s", key, candidateID))
}

// LifeKey is the key of a shared session's life lock: a lock of two integers that the
// session holds until it ends.
func LifeKey(candidateID string, pid int32) int64 {
	return lockkey.OfText(fmt.Sprintf("pgelector life:%d:%s", pid, candidateID))
}
