package doctor

import (
	"context"
	"fmt"
	"strconv"

	"github.com/pgelector/pgelector/db"
)

// A token has the sum of timeline and epoch above the transaction id.
const (
	sumShift = 48
	maxSum   = 1<<15 - 1
)

// tokenParts shows what the token of the trial is made of, and whether it is larger
// than the one that a store has seen last.
func (x *Examination) tokenParts(ctx context.Context) error {
	if x.token == 0 {
		return nil // the trial has said why
	}
	setting, err := question(ctx, x, func(ctx context.Context, q *db.Queries) (string, error) { return q.TokenEpoch(ctx) })
	if err != nil {
		return err
	}
	stored, err := strconv.ParseInt(setting, 10, 64)
	if err != nil {
		return fmt.Errorf("the setting pgelector.epoch of this database: %w", err)
	}
	own := int64(x.TokenEpoch)
	timeline := x.token>>sumShift - max(stored, own)
	v, remark := ok, ""
	switch {
	case own == 0 && stored > 0:
		remark = " (pgelector.epoch of the database)"
	case own == stored:
	case stored == 0:
		v, remark = note, fmt.Sprintf(" (--token-epoch): every candidate must have the same, by --token-epoch or WithTokenEpoch; "+
			"ALTER DATABASE … SET pgelector.epoch = '%d' would do for all", own)
	case own > stored:
		v, remark = warn, fmt.Sprintf(" (--token-epoch), but pgelector.epoch of the database is %d: a candidate without the flag makes smaller tokens, "+
			"which a fenced store refuses: ALTER DATABASE … SET pgelector.epoch = '%d'", stored, own)
	default:
		v, remark = warn, fmt.Sprintf(" (pgelector.epoch of the database), not --token-epoch %d: the larger counts: leave the flag out", own)
	}
	x.say(v, "token", "%d: timeline %d, transaction %d, epoch %d%s", x.token, timeline, transaction(x.token), max(stored, own), remark)
	if x.LastToken > 0 {
		x.compare(timeline)
	}
	return nil
}

// compare tells which epoch makes new tokens larger than the last one.
func (x *Examination) compare(timeline int64) {
	last := fmt.Sprintf("%d (timeline and epoch %d, transaction %d)", x.LastToken, x.LastToken>>sumShift, transaction(x.LastToken))
	needed := x.LastToken>>sumShift - timeline
	if transaction(x.token) <= transaction(x.LastToken) {
		needed++
	}
	switch {
	case x.token > x.LastToken:
		x.say(ok, "last token", "%s: new ones are larger", last)
	case timeline+needed > maxSum:
		x.say(fail, "last token", "%s: new ones are not larger, and no epoch can make them so: reset the token in the store, while nobody writes", last)
	default:
		x.say(fail, "last token", "%s: new ones are not larger, so a store that has seen it refuses every leader: "+
			"ALTER DATABASE … SET pgelector.epoch = '%d' as a superuser, or --token-epoch %[2]d, which is WithTokenEpoch(%[2]d), on every candidate", last, needed)
	}
}

func transaction(token int64) int64 { return token & (1<<sumShift - 1) }
