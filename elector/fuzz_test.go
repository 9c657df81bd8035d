package elector_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
)

// nowhere is a connector that New must not use.
type nowhere struct{}

func (nowhere) Connect(context.Context) (driver.Conn, error) { return nil, errors.New("New connects") }
func (nowhere) Driver() driver.Driver                        { return nil }

// New accepts exactly what the options document. The bounds are repeated here.
func FuzzNewTakesWhatIsDocumentedAndNothingElse(f *testing.F) {
	const s = int64(time.Second)
	f.Add("orders", "web-1", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("", "web-1", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("or\x00ders", "web-1", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders", "hôte", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("\xc6\x00\"", "web-1", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders", "web\r1", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders", "web\xf51", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders", strings.Repeat("x", 64), 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders", "web-1", s, 350*s/1000, 200*s/1000, s/100, s/100, s/100, 1)
	f.Add("orders", "web-1", s, 350*s/1000+1, 200*s/1000, s, s, s, 1)
	f.Add("orders", "web-1", 10*s, 2*s, int64(-1), s, s, s, -1)
	f.Add("orders", "web-1", int64(1<<63-1), int64(1<<63-1), int64(1<<63-1), 25*3600*s, s, s-1, 1)
	// At each bound, and just past it.
	const ms, day = s / 1000, 24 * 3600 * s
	f.Add(strings.Repeat("x", 1024), strings.Repeat("x", 63), day, day, int64(0), day, 10*ms, day, 0)
	f.Add(strings.Repeat("x", 1025), "web-1", 10*s, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders", "web-1", day, 2*s, 2*s, day, day, day, 0)
	f.Add("orders", "web-1", day+ms, 2*s, 2*s, s, s, 5*s, 0)
	f.Add("orders", "web-1", s-ms, 50*ms, int64(0), s, s, 5*s, 0)
	f.Add("orders", "web-1", s, 50*ms, int64(0), 10*ms, 10*ms, 10*ms, 0)
	f.Add("orders", "web-1", s, 50*ms-1, int64(0), s, s, 5*s, 0)
	f.Add("orders", "web-1", 10*s, 2*s, 2*s, day+1, s, 5*s, 0)
	f.Add("orders", "web-1", 10*s, 2*s, 2*s, 10*ms-1, s, 5*s, 0)
	f.Add("orders", "web-1", 10*s, 2*s, 2*s, s, 10*ms-1, 5*s, 0)
	f.Add("orders", "web-1", 10*s, 2*s, 2*s, s, s, day+1, 0)
	f.Add("orders", "web-1", 10*s, 2*s, 2*s, s, 2*s, 2*s-1, 0)
	f.Fuzz(func(t *testing.T, election, id string, length, heartbeat, drain, retry, least, most int64, attempts int) {
		pool := sql.OpenDB(nowhere{})
		defer pool.Close()
		e, err := elector.New(pool, election,
			elector.WithCandidateID(id),
			elector.WithLease(time.Duration(length)), elector.WithHeartbeatInterval(time.Duration(heartbeat)), elector.WithDrain(time.Duration(drain)),
			elector.WithRetryInterval(time.Duration(retry)), elector.WithBackoff(time.Duration(least), time.Duration(most)), elector.WithMaxAttempts(attempts))
		length = length / ms * ms
		wait := func(d int64) bool { return 10*ms <= d && d <= day }
		allowed := election != "" && len(election) <= 1024 && !strings.Contains(election, "\x00") &&
			id != "" && len(id) <= 63 && strings.Trim(id, printable) == "" &&
			s <= length && length <= day && 50*ms <= heartbeat && heartbeat <= day &&
			0 <= drain && drain <= day && 2*heartbeat <= length-length/10-drain &&
			wait(retry) && wait(least) && wait(most) && least <= most && attempts >= 0
		switch {
		case allowed && err != nil:
			t.Errorf("refused: %v", err)
		case !allowed && !errors.Is(err, elector.ErrConfig):
			t.Errorf("accepted, or refused with another error: %v", err)
		case allowed && (e.Election() != election || e.CandidateID() != id || e.Key() != elector.KeyFromName(election)):
			t.Errorf("got candidate %q of %q with key %d", e.CandidateID(), e.Election(), e.Key())
		}
	})
}

const printable = " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"
