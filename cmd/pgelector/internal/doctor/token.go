package doctor

import (
	"context"
	"fmt"
	"strconv"

	"github.com/pgelector/pgelector/db"
)

// A token is the sum of timeline and epoch, followed by the transaction id.
const (
	sumShift = 48
	maxSum   = 1<<15 - 1
)

// tokenParts shows the parts of the trial's token, and whether it is larger than LastToken.
func (x *Examination) tokenParts(ctx context.Context) error {
	if x.token == 0 {
		return nil // the trial reported why
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
		v, remark = note, fmt.Sprintf(" (--token-epoch): set the same for every candidate, with --token-epoch or WithTokenEpoch, "+
			"or once for all with ALTER DATABASE … SET pgelector.epoch = '%d'", own)
	case own > stored:
		v, remark = warn, fmt.Sprintf(" (--token-epoch), but pgelector.epoch of the database is %d: candidates without the flag get smaller tokens, "+
			"which a fenced store refuses: ALTER DATABASE … SET pgelector.epoch = '%d'", stored, own)
	default:
		v, remark = warn, fmt.Sprintf(" (pgelector.epoch of the database): it is larger than --token-epoch %d, so omit the flag", own)
	}
	x.say(v, "token", "%d: timeline %d, transaction %d, epoch %d%s", x.token, timeline, transaction(x.token), max(stored, own), remark)
	if x.LastToken > 0 {
		x.compare(timeline)
	}
	return nil
}

// compare checks that new tokens are larger than the last one, or names the epoch that
// makes them so.
func (x *Examination) compare(timeline int64) {
	last := fmt.Sprintf("%d (timeline and epoch %d, transaction %d)", x.LastToken, x.LastToken>>sumShift, transaction(x.LastToken))
	needed := x.LastToken>>sumShift - timeline
	if transaction(x.token) <= transaction(x.LastToken) {
		needed++
	}
	switch {
	case x.token > x.LastToken:
		x.say(ok, "last token", "%s: new tokens are larger", last)
	case timeline+needed > maxSum:
		x.say(fail, "last token", "%s: new tokens are not larger, and no epoch can make them so: reset the token in the store while nobody writes", last)
	default:
		x.say(fail, "last token", "%s: new tokens are not larger, so the store refuses every leader: "+
			"ALTER DATABASE … SET pgelector.epoch = '%d' as a superuser, or set --token-epoch %[2]d or WithTokenEpoch(%[2]d) on every candidate", last, needed)
	}
}

func transaction(token int64) int64 { return token & (1<<sumShift - 1) }
