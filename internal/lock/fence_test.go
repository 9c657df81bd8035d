package lock

import (
	"testing"

	"github.com/pgelector/pgelector/internal/session"
)

func FuzzTheGuardHasAllBitsOfTheKey(f *testing.F) {
	for _, key := range []int64{0, 1, -1, 1 << 32, -7492410215596134511} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key int64) {
		if high, low := session.Halves(key); int64(high)<<32|int64(uint32(low)) != key {
			t.Errorf("the guard of %d is (%d, %d)", key, high, low)
		}
	})
}
