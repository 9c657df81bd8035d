package roster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
)

var (
	now   = time.Now()
	one   = hooks.Origin{Election: "orders", Key: 1, CandidateID: "one"}
	grace = 45 * time.Second
)

func TestACandidateStaysWhileItHasEvents(t *testing.T) {
	for name, c := range map[string]struct {
		e      hooks.Campaign
		stays  time.Duration // since that attempt
		leaves time.Duration
	}{
		"that polls":              {hooks.Campaign{Next: time.Hour, Outcome: hooks.Busy}, 2*time.Hour + grace, 2*time.Hour + grace + 1},
		"that waits":              {hooks.Campaign{Took: 30 * time.Second, Outcome: hooks.Busy}, time.Minute + grace, time.Minute + grace + 1},
		"that fails":              {hooks.Campaign{Next: time.Minute, Outcome: hooks.Failed}, 2*time.Minute + grace, 2*time.Minute + grace + 1},
		"that tries no more":      {hooks.Campaign{Outcome: hooks.Busy}, grace, grace + 1},
		"that leads, and is done": {hooks.Campaign{Took: time.Hour, Outcome: hooks.Granted}, grace, grace + 1},
	} {
		l := newLedger(grace)
		c.e.Origin, c.e.At = one, now
		l.attempted(c.e)
		if l.expire(now.Add(c.stays)); len(l.batch(true).publish) != 1 {
			t.Errorf("one %s has left after %v", name, c.stays)
		}
		if l.expire(now.Add(c.leaves)); len(l.batch(true).publish) != 0 || len(l.batch(true).leave) != 1 {
			t.Errorf("one %s has not left after %v", name, c.leaves)
		}
	}
}

func TestALeaderStaysWithoutEvents(t *testing.T) {
	l := newLedger(grace)
	l.elected(hooks.Elected{Origin: one, Token: 7, At: now})
	if l.expire(now.Add(1000 * time.Hour)); len(l.batch(true).publish) != 1 {
		t.Error("it has left")
	}
	l.demoted(hooks.Demoted{Origin: one, Token: 7, At: now.Add(1000 * time.Hour)})
	if l.expire(now.Add(1000*time.Hour + grace + 1)); len(l.batch(true).leave) != 1 {
		t.Error("after its term it has not left")
	}
	l.attempted(hooks.Campaign{Origin: one, At: now.Add(1001 * time.Hour)})
	if b := l.batch(false); len(b.leave) != 0 || len(b.publish) != 1 {
		t.Errorf("it is back, and this is written: %+v", b)
	}
}

func TestACandidateThatBecomesUnhealthyOrHealthyIsPublishedAgain(t *testing.T) {
	l := newLedger(grace)
	says := func(healthy bool) {
		t.Helper()
		l.checked(one, elector.Health{At: now, Healthy: healthy}, now)
		b := l.batch(false)
		if len(b.publish) != 1 || b.publish[0].health.Healthy != healthy {
			t.Fatalf("healthy: %v; published is %+v", healthy, b.publish)
		}
		l.wrote(b)
		l.checked(one, elector.Health{At: now, Healthy: healthy}, now)
		if b := l.batch(false); len(b.publish) != 0 || l.news {
			t.Errorf("without a change it is published again: %+v", b.publish)
		}
	}
	says(true)
	says(false)
	says(true)
	if l.checked(one, elector.Health{At: now.Add(time.Second), Healthy: true}, now) {
		t.Error("a time alone is news")
	}
	for _, h := range []elector.Health{{Score: 0.5}, {Score: 0.5, Why: "disk"}, {Score: 0.5, Why: "disk", Metadata: map[string]string{"a": "b"}}, {Score: 0.5, Minimum: 0.2}} {
		if h.Healthy = true; !l.checked(one, h, now) || len(l.batch(false).publish) != 1 {
			t.Errorf("%+v is no news", h)
		}
	}
}

func TestACheckedCandidateIsPublishedWithItsScoreWhileTheChecksAreRecent(t *testing.T) {
	l := newLedger(grace)
	if l.checked(one, elector.Health{Score: 0.2, At: now}, now.Add(grace+1)); len(l.batch(true).publish) != 0 {
		t.Error("an old check, such as that of a stopped elector, made it take part")
	}
	l.checked(one, elector.Health{Score: 0.2, At: now}, now.Add(grace))
	if b := l.batch(false); len(b.publish) != 1 || b.publish[0].health.Score != 0.2 {
		t.Errorf("a check alone publishes %+v", b.publish)
	}
	l.checked(one, elector.Health{Score: 0.3, At: now.Add(time.Minute)}, now.Add(time.Minute))
	if l.expire(now.Add(time.Minute + grace)); len(l.batch(true).publish) != 1 || l.batch(true).publish[0].health.Score != 0.3 {
		t.Error("it has left while it was checked, or its score is the first one")
	}
	l.attempted(hooks.Campaign{Origin: one, At: now.Add(time.Minute), Next: time.Hour, Outcome: hooks.Busy})
	l.checked(one, elector.Health{Score: 0.9, At: now.Add(2 * time.Minute)}, now.Add(2*time.Minute))
	if l.expire(now.Add(2 * time.Hour)); len(l.batch(true).publish) != 1 {
		t.Error("a check has shortened the stay of a candidate that polls once an hour")
	}
	if l.expire(now.Add(3 * time.Hour)); len(l.batch(true).leave) != 1 {
		t.Error("it has not left without events")
	}
}

func TestTheLatestStateOfATermIsWritten(t *testing.T) {
	l := newLedger(grace)
	l.elected(hooks.Elected{Origin: one, Token: 7, At: now})
	early := l.batch(false)
	l.demoted(hooks.Demoted{Origin: one, Token: 7, At: now.Add(time.Minute), Held: time.Minute, Reason: hooks.Resigned, Err: errors.New("why")})
	if b := l.batch(false); len(b.terms) != 1 || b.terms[0].reason != hooks.Resigned || b.terms[0].err != "why" || !b.terms[0].electedAt.Equal(now) {
		t.Errorf("to be written: %+v", b.terms)
	}
	l.wrote(early)
	if b := l.batch(false); len(b.terms) != 1 || b.terms[0].reason != hooks.Resigned {
		t.Errorf("events during the write were lost: %+v", b.terms)
	}
	l.wrote(l.batch(false))
	if b := l.batch(false); !b.empty() {
		t.Errorf("all is written, but for %+v", b)
	}
	if b := l.batch(true); len(b.publish) != 1 || len(b.terms) != 0 {
		t.Errorf("at the interval is written %+v", b)
	}
}

func TestTheOldestTermsAreDroppedWhenTooManyWait(t *testing.T) {
	l := newLedger(grace)
	for token := range int64(maxWaiting + 10) {
		l.elected(hooks.Elected{Origin: one, Token: token, At: now})
	}
	if b := l.batch(false); len(b.terms) != maxWaiting || b.terms[0].token != 10 || l.dropped != 10 {
		t.Errorf("%d wait, the oldest of token %d, and %d were dropped", len(b.terms), b.terms[0].token, l.dropped)
	}
}

func TestOnlySomeEventsAreWrittenAtOnce(t *testing.T) {
	l := newLedger(grace)
	for what, c := range []struct {
		note func()
		news bool
	}{
		{func() { l.attempted(hooks.Campaign{Origin: one, At: now}) }, true},
		{func() { l.attempted(hooks.Campaign{Origin: one, At: now}) }, false},
		{func() { l.elected(hooks.Elected{Origin: one, Token: 7, At: now}) }, true},
		{func() { l.demoted(hooks.Demoted{Origin: one, Token: 7, At: now}) }, true},
		{func() { l.republish() }, true},
		{func() {}, false},
	} {
		if c.note(); l.news != c.news {
			t.Errorf("after step %d news are %v", what+1, l.news)
		}
		l.batch(false)
	}
}

// The write under way has the metadata of before.
func TestMetadataThatChangesDuringAWriteIsWrittenAtOnce(t *testing.T) {
	l := newLedger(grace)
	l.attempted(hooks.Campaign{Origin: one, At: now})
	b := l.batch(false)
	l.republish()
	l.wrote(b)
	if b = l.batch(false); len(b.publish) != 1 {
		t.Errorf("then this is written: %+v", b)
	}
	l.wrote(b)
	if b = l.batch(false); !b.empty() {
		t.Errorf("and again: %+v", b)
	}
}

// An observer waits for what the new leader publishes in its term. The write under way may be
// of before.
func TestALeaderIsPublishedAgain(t *testing.T) {
	l := newLedger(grace)
	l.attempted(hooks.Campaign{Origin: one, At: now})
	l.wrote(l.batch(false))
	for i, during := range []string{"after a write", "during a write"} {
		b := l.batch(true)
		if during == "after a write" {
			l.wrote(b)
		}
		if l.elected(hooks.Elected{Origin: one, Token: int64(i), At: now}); during == "during a write" {
			l.wrote(b)
		}
		b = l.batch(false)
		if len(b.publish) != 1 {
			t.Errorf("elected %s, it is not published again: %+v", during, b)
		}
		if l.wrote(b); !l.batch(false).empty() {
			t.Errorf("elected %s, it is published twice", during)
		}
	}
}

func TestTextIsStoredAsPostgreSQLAllows(t *testing.T) {
	for text, want := range map[string]string{"plain": "plain", "a\x00b": "a\uFFFDb", "\xff": "\uFFFD", "ü": "ü"} {
		if got := clean(text); got != want {
			t.Errorf("%q is kept as %q, want %q", text, got, want)
		}
	}
	if got := clean(strings.Repeat("ü", maxText)); len(got) > maxText+2 {
		t.Errorf("%d bytes are kept", len(got))
	}
}

// One that was added to an elector (Add) and given to it (WithHooks) is.
func TestARosterThatIsTwiceAmongTheHooksWritesOnce(t *testing.T) {
	l := newLedger(grace)
	began, ended := hooks.Elected{Origin: one, Token: 7, At: now}, hooks.Demoted{Origin: one, Token: 7, At: now.Add(time.Second)}
	l.elected(began)
	l.wrote(l.batch(false))
	l.elected(began)
	if b := l.batch(false); !b.empty() {
		t.Errorf("after the same event this is written again: %+v", b)
	}
	l.demoted(ended)
	l.wrote(l.batch(false))
	l.demoted(ended)
	if b := l.batch(false); !b.empty() {
		t.Errorf("after the same event this is written again: %+v", b)
	}
}
