package session

import (
	"fmt"

	"github.com/pgelector/pgelector/internal/lockkey"
)

// SeatKey is the key of an election's seats, which are locks of two integers. The other seat
// differs in the lowest bit.
func SeatKey(key int64) int64 { return lockkey.Of("seat", key) }

// Bell is the first integer of each session's bell: the first 31 bits of SHA-256 over
// "pgelector bell", without the sign. The second is the process id of the backend.
const Bell = 983268819

// By locks of two integers a session tells others about itself: [db.TryLock] documents them.
const (
	leaseClass       = 318473925  // the second integer is the lease in milliseconds
	leaseClassInside = 1530767677 // the same, in transaction scope
	sinceClass       = 521961639  // the second is the time at which the term began, in seconds
)

// ResignKey and TransferKey are the keys of the locks of two integers that are a request to
// an election's leader.
func ResignKey(key int64) int64   { return lockkey.Of("resign", key) }
func TransferKey(key int64) int64 { return lockkey.Of("transfer", key) }

// OfferKey is the key of the lock of two integers by which a leader offers its lock to a candidate.
func OfferKey(candidateID string, key int64) int64 {
	return lockkey.OfText(fmt.Sprintf("pgelector offer:%d:%s", key, candidateID))
}

// AnswerKey is the key of the lock of two integers by which a leader answers a request. It names
// the transaction of the one who asks, since the next request may come from the same backend.
func AnswerKey(pid int32, transaction string) int64 {
	return lockkey.OfText(fmt.Sprintf("pgelector answer:%d:%s", pid, transaction))
}

// LifeKey is the key of a shared session's life lock: a lock of two integers that the
// session holds until it ends.
func LifeKey(candidateID string, pid int32) int64 {
	return lockkey.OfText(fmt.Sprintf("pgelector life:%d:%s", pid, candidateID))
}
