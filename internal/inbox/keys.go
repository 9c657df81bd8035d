package inbox

import (
	"fmt"

	"github.com/pgelector/pgelector/internal/lockkey"
)

// Bell is the first integer of each session's bell: the first 31 bits of SHA-256 over
// "pgelector bell", without the sign. The second is the process id of the backend.
const Bell = 983268819

// ResignKey and TransferKey are the keys of the locks of two integers that are a request to
// an election's leader.
func ResignKey(key int64) int64   { return lockkey.Of("resign", key) }
func TransferKey(key int64) int64 { return lockkey.Of("transfer", key) }

// AnswerKey is the key of the lock of two integers by which a leader answers a request. It names
// the transaction of the one who asks, since the next request may come from the same backend.
func AnswerKey(pid int32, transaction string) int64 {
	return lockkey.OfText(fmt.Sprintf("pgelector answer:%d:%s", pid, transaction))
}
