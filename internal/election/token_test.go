package election_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/internal/election"
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
		{1, election.MaxTokenEpoch, "0", 32767},
		{1, 0, "32766", 32767},
		{32767, 0, "0", 32767},
		{2, 0, "007", 9},
	} {
		timeline, token, err := election.TokenOf(c.timeline<<48|xid, c.own, c.setting)
		if err != nil || timeline != c.timeline || token>>48 != c.want || token&(1<<48-1) != xid {
			t.Errorf("timeline %d, epochs %d and %s: got %d, %x, %v, want %d above %d", c.timeline, c.own, c.setting, timeline, token, err, c.want, xid)
		}
	}
}

func TestATokenWithAnEpochIsPositiveOrAnError(t *testing.T) {
	for _, c := range []struct {
		token, own int64
		setting    string
		want       error
		says       string
	}{
		{1<<48 | 1, 0, "", election.ErrTokenEpoch, `is "": want a number from 0 to 32766`},
		{1<<48 | 1, 9, "three", election.ErrTokenEpoch, `is "three"`},
		{1<<48 | 1, 0, "-1", election.ErrTokenEpoch, `is "-1"`},
		{1<<48 | 1, 0, " 1", election.ErrTokenEpoch, `is " 1"`},
		{1<<48 | 1, 0, "1.5", election.ErrTokenEpoch, `is "1.5"`},
		{1<<48 | 1, 0, "32767", election.ErrTokenEpoch, `is "32767"`},
		{1<<48 | 1, 0, "99999999999999999999", election.ErrTokenEpoch, `is "99999999999999999999"`},
		{2<<48 | 1, 0, "32766", election.ErrTokenEpoch, "timeline 2 and epoch 32766"},
		{2<<48 | 1, election.MaxTokenEpoch, "3", election.ErrTokenEpoch, "(this candidate's 32766, the setting pgelector.epoch of this database 3)"},
		{0, 0, "0", election.ErrNoToken, "(timeline 0, transaction id 0)"},
		{745, 0, "0", election.ErrNoToken, "(timeline 0, transaction id 745)"},
		{1 << 48, 0, "0", election.ErrNoToken, "(timeline 1, transaction id 0)"},
		{-1 << 48, 0, "0", election.ErrNoToken, "(timeline -1, transaction id 0)"},
		{-1, 0, "0", election.ErrNoToken, "(timeline -1,"},
	} {
		_, token, err := election.TokenOf(c.token, c.own, c.setting)
		if token != 0 || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("token %x, epochs %d and %q: got %x, %v, want an error that says %s", c.token, c.own, c.setting, token, err, c.says)
		}
	}
}
