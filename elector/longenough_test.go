package elector

import (
	"strings"
	"testing"
	"time"
)

func TestAnErrorOfALeaseThatIsTooShortSaysWhichIsLongEnough(t *testing.T) {
	for _, opts := range [][]Option{
		{WithDrain(20*time.Second + 200*time.Millisecond)},
		{WithHeartbeatInterval(5 * time.Second)},
		{WithDrain(time.Hour), WithHeartbeatInterval(20 * time.Second)},
	} {
		_, err := configure("orders", opts)
		_, text, found := strings.Cut(err.Error(), "lengthen the lease to ")
		length, failed := time.ParseDuration(text)
		if !found || failed != nil {
			t.Fatalf("%v", err)
		}
		if _, err := configure("orders", append(opts, WithLease(length))); err != nil {
			t.Errorf("a lease of %v is too short, too: %v", length, err)
		}
	}
	if _, err := configure("orders", []Option{WithDrain(24 * time.Hour)}); err == nil || !strings.HasSuffix(err.Error(), "lengthen the lease") {
		t.Errorf("%v", err)
	}
}
