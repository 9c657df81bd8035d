package session

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"
)

const marginShare = 10 // margin = lease/10

// connectTimeout is the least time that opening a connection gets. Nothing is held
// meanwhile, and a driver that tries several hosts in turn needs time for each: a frozen
// one takes all of its connect_timeout.
const connectTimeout = 30 * time.Second

// A Lease is the time arithmetic of a session, derived in elector/doc.go. All of it counts
// from just before the last answered statement was sent, because the server's idle timer
// starts later than that.
type Lease struct {
	Length    time.Duration // the server keeps an idle session at least this long
	Heartbeat time.Duration // from the sending of one heartbeat to the next
	Drain     time.Duration // what the work gets to wind down
}

// Margin covers the drift of two clocks' rates and the time it takes to be scheduled.
func (l Lease) Margin() time.Duration { return l.Length / marginShare }

// Validity is for how long after a statement was sent its answer may be relied on, to lead
// or to be elected.
func (l Lease) Validity() time.Duration { return l.Length - l.Margin() - l.Drain }

// Safety is for how long after a statement was sent the work may go on: past it, the
// server may give the lock to another.
func (l Lease) Safety() time.Duration { return l.Length - l.Margin() }

// Halves are the two integers of a lock in the key space of two integers (PostgreSQL
// manual, 9.27.10), where no election's lock can be.
func Halves(key int64) (high, low int32) { return int32(key >> 32), int32(key) }

// purposeKey is the key of another lock of an election.
func purposeKey(purpose string, key int64) int64 {
	return hashKey(string(binary.BigEndian.AppendUint64([]byte("pgelector "+purpose+":"), uint64(key))))
}

func hashKey(text string) int64 {
	sum := sha256.Sum256([]byte(text))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// SeatKey is the key of an election's seats, which are locks of two integers. The other seat
// differs in the lowest bit.
func SeatKey(key int64) int64 { return purposeKey("seat", key) }

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
func ResignKey(key int64) int64   { return purposeKey("resign", key) }
func TransferKey(key int64) int64 { return purposeKey("transfer", key) }

// OfferKey is the key of the lock of two integers by which a leader offers its lock to a candidate.
func OfferKey(candidateID string, key int64) int64 {
	return hashKey(fmt.Sprintf("pgelector offer:%d:%s", key, candidateID))
}

// AnswerKey is the key of the lock of two integers by which a leader answers a request. It names
// the transaction of the one who asks, since the next request may come from the same backend.
func AnswerKey(pid int32, transaction string) int64 {
	return hashKey(fmt.Sprintf("pgelector answer:%d:%s", pid, transaction))
}

// LifeKey is the key of a shared session's life lock: a lock of two integers that the
// session holds until it ends.
func LifeKey(candidateID string, pid int32) int64 {
	return hashKey(fmt.Sprintf("pgelector life:%d:%s", pid, candidateID))
}
