package election

import (
	"errors"
	"fmt"
	"strconv"
)

// Package elector returns these as its own.
var (
	ErrNoToken    = errors.New("elector: the server grants the lock, with a token that no PostgreSQL server makes: does something between it and this program change its answers? Connect to the server itself")
	ErrTokenEpoch = errors.New("elector: the epoch of tokens cannot be used")
)

// TimelineShift and maxTimeline: a token has the sum of timeline and epoch in its upper 16 bits, one of which is the sign.
const (
	TimelineShift = 48
	maxTimeline   = 1<<15 - 1
)

// MaxTokenEpoch leaves room for the first timeline.
const MaxTokenEpoch = maxTimeline - 1

// TokenOf returns the server's timeline, and the token of a lock that the server has granted. An answer
// without a timeline or a transaction id is impossible, so it elects nobody.
func TokenOf(answer, epoch int64, setting string) (timeline, token int64, err error) {
	timeline = answer >> TimelineShift
	xid := answer & (1<<TimelineShift - 1)
	if timeline <= 0 || xid == 0 {
		return 0, 0, fmt.Errorf("%w (timeline %d, transaction id %d)", ErrNoToken, timeline, xid)
	}
	token, err = addEpoch(answer, epoch, setting)
	return timeline, token, err
}

// addEpoch adds the larger of two epochs, the candidate's and the database's, to the timeline
// of a token. A setting that is no epoch is an error, because without the epoch the
// token could be smaller than the token of an earlier term.
func addEpoch(token, own int64, setting string) (int64, error) {
	stored, err := strconv.ParseUint(setting, 10, 64)
	if err != nil || stored > MaxTokenEpoch {
		return 0, fmt.Errorf("%w: the setting pgelector.epoch of this database is %q: want a number from 0 to %d: "+
			"correct it by ALTER DATABASE … SET pgelector.epoch", ErrTokenEpoch, setting, MaxTokenEpoch)
	}
	timeline, epoch := token>>TimelineShift, max(own, int64(stored))
	if timeline+epoch > maxTimeline {
		return 0, fmt.Errorf("%w: timeline %d and epoch %d (this candidate's %d, the setting pgelector.epoch of this database %d) do not fit "+
			"into a token: want a sum of at most %d", ErrTokenEpoch, timeline, epoch, own, stored, maxTimeline)
	}
	return token + epoch<<TimelineShift, nil
}
