package lock

import (
	"errors"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/internal/lockkey"
)

func TestTheLargerEpochIsAddedToTheTimeline(t *testing.T) {
	const xid = 745
	for _, c := range []struct {
		timeline, own int64
		setting       string
		want          int64 // in the upper bits
	}{
		{1, 0, "0", 1},
		{1, 2, "0", 3},
		{1, 0, "2", 3},
		{1, 2, "7", 8},
		{3, 7, "2", 10},
		{1, 5, "5", 6},
		{1, MaxTokenEpoch, "0", 32767},
		{1, 0, "32766", 32767},
		{32767, 0, "0", 32767},
		{2, 0, "007", 9},
	} {
		token, err := addEpoch(c.timeline<<48|xid, c.own, c.setting)
		if err != nil || token>>48 != c.want || token&(1<<48-1) != xid {
			t.Errorf("timeline %d, epochs %d and %s: got %x, %v, want %d above %d", c.timeline, c.own, c.setting, token, err, c.want, xid)
		}
	}
}

func TestATokenWithAnEpochIsPositiveOrAnError(t *testing.T) {
	for _, c := range []struct {
		token, own int64
		setting    string
		says       string
	}{
		{1 << 48, 0, "", `is "": want a number from 0 to 32766`},
		{1 << 48, 9, "three", `is "three"`},
		{1 << 48, 0, "-1", `is "-1"`},
		{1 << 48, 0, " 1", `is " 1"`},
		{1 << 48, 0, "1.5", `is "1.5"`},
		{1 << 48, 0, "32767", `is "32767"`},
		{1 << 48, 0, "99999999999999999999", `is "99999999999999999999"`},
		{2 << 48, 0, "32766", "timeline 2 and epoch 32766"},
		{2 << 48, MaxTokenEpoch, "3", "(this candidate's 32766, the setting pgelector.epoch of this database 3)"},
	} {
		token, err := addEpoch(c.token, c.own, c.setting)
		if token != 0 || !errors.Is(err, ErrTokenEpoch) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("token %x, epochs %d and %q: got %x, %v, want an error that says %s", c.token, c.own, c.setting, token, err, c.says)
		}
	}
}

func FuzzTheGuardHasAllBitsOfTheKey(f *testing.F) {
	for _, key := range []int64{0, 1, -1, 1 << 32, -7492410215596134511} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key int64) {
		if high, low := lockkey.Halves(key); int64(high)<<32|int64(uint32(low)) != key {
			t.Errorf("the guard of %d is (%d, %d)", key, high, low)
		}
	})
}
