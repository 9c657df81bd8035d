package lockkey

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"
)

// The keys are a protocol between versions: a change would let two lead.
func TestTheKeysOfAnElectionStayAsTheyAre(t *testing.T) {
	for text, want := range map[string]int64{"pgelector:orders": FromName("orders"), "pgelector:": FromName(""), "x": OfText("x")} {
		sum := sha256.Sum256([]byte(text))
		if key := int64(binary.BigEndian.Uint64(sum[:])); key != want {
			t.Errorf("%q: got %d, want %d", text, want, key)
		}
	}
	for _, key := range []int64{0, 1, -1, 1 << 62} {
		var text []byte
		text = fmt.Append(text, "pgelector seat:")
		text = binary.BigEndian.AppendUint64(text, uint64(key))
		sum := sha256.Sum256(text)
		if got, want := Of("seat", key), int64(binary.BigEndian.Uint64(sum[:])); got != want {
			t.Errorf("the seat of %d: got %d, want %d", key, got, want)
		}
	}
	if Of("seat", 1) == Of("offer", 1) || Of("seat", 1) == Of("seat", 2) || FromName("a") == FromName("b") {
		t.Error("two locks have one key")
	}
}

func TestTheHalvesAreTheUpperAndTheLowerBits(t *testing.T) {
	for key, want := range map[int64][2]int32{0: {0, 0}, 1: {0, 1}, -1: {-1, -1}, 1 << 32: {1, 0}, 1<<32 - 1: {0, -1}, -1 << 63: {-1 << 31, 0}} {
		if high, low := Halves(key); high != want[0] || low != want[1] {
			t.Errorf("%d: got %d, %d, want %v", key, high, low, want)
		}
	}
}
