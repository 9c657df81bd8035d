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
		"beside one that is not listed": {func(a *acknowledgement) {
			a.streams(sender{"s1", false}, sender{"s2", false}, sender{"x", true}, sender{"x", true})
		}, nil},
		"in letters of another case":         {func(a *acknowledgement) { a.streams(sender{"S1", false}, sender{"S2", false}) }, nil},
		"and then the standbys went away":    {func(a *acknowledgement) { a.streams() }, nil},
		"a standby has not got it":           {func(a *acknowledgement) { a.streams(sender{"s1", false}, sender{"S2", true}) }, errUnacknowledged},
		"two of a name":                      {func(a *acknowledgement) { a.streams(sender{"s1", false}, sender{"S1", false}) }, errUnacknowledged},
		"too late to tell it from a cancel":  {func(a *acknowledgement) { a.took++ }, errUnacknowledged},
		"another commit waits":               {func(a *acknowledgement) { a.commit.Outcome = "waiting" }, errUnacknowledged},
		"reloaded meanwhile":                 {func(a *acknowledgement) { a.now.Loaded++ }, errUnacknowledged},
		"changed meanwhile, to what is well": {func(a *acknowledgement) { a.now.StandbyNames = "ANY 2 (s1, s2)" }, errUnacknowledged},
		"changed meanwhile":                  {func(a *acknowledgement) { a.now.StandbyNames = "FIRST 1 (s1, s2)" }, ErrNotSynchronous},
		"of one of two":                      {func(a *acknowledgement) { a.setting("s1, s2") }, ErrNotSynchronous},
		"of nobody":                          {func(a *acknowledgement) { a.setting("") }, ErrNotSynchronous},
		"on a standby":                       {func(a *acknowledgement) { a.commit.Outcome = "standby" }, errElsewhere},
		"where the session's lock is not":    {func(a *acknowledgement) { a.commit.Outcome = "elsewhere" }, errElsewhere},
		"of another backend":                 {func(a *acknowledgement) { a.now.Pid++ }, ErrSessionPooled},
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

func TestWhoStreamsIsReadAsTheServerWritesIt(t *testing.T) {
	for text, want := range map[string][]sender{
		`[]`: nil,
		`[{"name" : "s1", "behind" : null}, {"name" : "s\"2", "behind" : true}]`: {{"s1", false}, {`s"2`, true}},
	} {
		if got, err := senders(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", text, got, err, want)
		}
	}
	if _, err := senders("no list"); err == nil {
		t.Error("what is no list was read as one")
	}
}
