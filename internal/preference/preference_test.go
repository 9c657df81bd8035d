package preference

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"testing"
	"time"
)

func TestALockTellsAPriority(t *testing.T) {
	sum := sha256.Sum256([]byte("pgelector priority"))
	if want := binary.BigEndian.Uint32(sum[:]) &^ (1 << 31); Class != want {
		t.Errorf("the class is %d, want %d", Class, want)
	}
	for _, priority := range []int32{0, 1, -1, math.MaxInt32, math.MinInt32} {
		if got, told := Told(Class<<32 | int64(uint32(priority))); got != priority || !told {
			t.Errorf("of %d: got %d, %t", priority, got, told)
		}
	}
	for _, key := range []int64{0, -1, Class, (Class + 1) << 32, -Class << 32} {
		if _, told := Told(key); told {
			t.Errorf("%d tells a priority", key)
		}
	}
}

func TestATermEndsOnceItIsAMinuteOldOrAsOldAsTheDelay(t *testing.T) {
	for delay, want := range map[time.Duration]time.Duration{0: time.Minute, time.Second: time.Minute, time.Hour: time.Hour} {
		if got := Due(delay); got != want {
			t.Errorf("with a delay of %v: after %v", delay, got)
		}
	}
}
