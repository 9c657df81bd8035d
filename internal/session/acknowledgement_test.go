package session

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pgelector/pgelector/db"
)

func TestAnAnswerToACommitIsAnAcknowledgementOnlyIfNothingSpeaksAgainstIt(t *testing.T) {
	const longest, before = time.Second, 1000
	for name, tt := range map[string]struct {
		change func(a *acknowledgement)
		want   error
	}{
		"acknowledged": {func(a *acknowledgement) {}, nil},
		"another standby is not listed": {func(a *acknowledgement) {
			a.streams(sender{"s1", false}, sender{"s2", false}, sender{"x", true}, sender{"x", true})
		}, nil},
		"the names differ in case":               {func(a *acknowledgement) { a.streams(sender{"S1", false}, sender{"S2", false}) }, nil},
		"the standbys disconnected afterwards":   {func(a *acknowledgement) { a.streams() }, nil},
		"a standby is behind":                    {func(a *acknowledgement) { a.streams(sender{"s1", false}, sender{"S2", true}) }, errUnacknowledged},
		"two standbys have one name":             {func(a *acknowledgement) { a.streams(sender{"s1", false}, sender{"S1", false}) }, errUnacknowledged},
		"too slow: it may have been cancelled":   {func(a *acknowledgement) { a.took++ }, errUnacknowledged},
		"another commit waits":                   {func(a *acknowledgement) { a.commit.Outcome = "waiting" }, errUnacknowledged},
		"reloaded":                               {func(a *acknowledgement) { a.now.Loaded++ }, errUnacknowledged},
		"changed to a sufficient setting":        {func(a *acknowledgement) { a.now.StandbyNames = "ANY 2 (s1, s2)" }, errUnacknowledged},
		"changed to an insufficient setting":     {func(a *acknowledgement) { a.now.StandbyNames = "FIRST 1 (s1, s2)" }, ErrNotSynchronous},
		"one of two must acknowledge":            {func(a *acknowledgement) { a.setting("s1, s2") }, ErrNotSynchronous},
		"nobody must acknowledge":                {func(a *acknowledgement) { a.setting("") }, ErrNotSynchronous},
		"on a standby":                           {func(a *acknowledgement) { a.commit.Outcome = "standby" }, errElsewhere},
		"on a server without the session's lock": {func(a *acknowledgement) { a.commit.Outcome = "elsewhere" }, errElsewhere},
		"on another backend":                     {func(a *acknowledgement) { a.now.Pid++ }, ErrSessionPooled},
	} {
		a := acknowledgement{commit: db.CommitSynchronouslyRow{Outcome: "committed", Pid: 7, Loaded: before}, took: longest,
			now: replication{SynchronousStandbysRow: db.SynchronousStandbysRow{Pid: 7, Loaded: before}}}
		a.setting("FIRST 2 (s1, s2)")
		a.streams(sender{"s1", false}, sender{"s2", false})
		tt.change(&a)
		if err := a.check(longest); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

func (a *acknowledgement) setting(s string)      { a.commit.StandbyNames, a.now.StandbyNames = s, s }
func (a *acknowledgement) streams(all ...sender) { a.now.senders = all }

func TestTheListOfStandbysIsParsed(t *testing.T) {
	for text, want := range map[string][]sender{
		`[]`: nil,
		`[{"name" : "s1", "behind" : null}, {"name" : "s\"2", "behind" : true}]`: {{"s1", false}, {`s"2`, true}},
	} {
		if got, err := senders(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", text, got, err, want)
		}
	}
	if _, err := senders("no list"); err == nil {
		t.Error("text that is no list was parsed")
	}
}
