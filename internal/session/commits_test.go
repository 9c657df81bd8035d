package session

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/pgelector/pgelector/db"
)

func TestAnAnswerToACommitIsAnAcknowledgementOnlyIfNothingSpeaksAgainstIt(t *testing.T) {
	const longest = time.Second
	for name, tt := range map[string]struct {
		setting string
		streams []sender
		took    time.Duration
		want    error
	}{
		"acknowledged":                      {"FIRST 2 (s1, s2)", []sender{{Name: "s1"}, {Name: "S2"}}, longest, nil},
		"beside one that is not listed":     {"s1", []sender{{Name: "s1"}, {Name: "other", Behind: true}, {Name: "other"}}, 0, nil},
		"and then the standby went away":    {"s1", nil, 0, nil},
		"a standby has not got it":          {"FIRST 2 (s1, s2)", []sender{{Name: "s1"}, {Name: "s2", Behind: true}}, 0, errUnacknowledged},
		"two of a name":                     {"s1", []sender{{Name: "s1"}, {Name: "S1"}}, 0, errUnacknowledged},
		"too late to tell it from a cancel": {"s1", []sender{{Name: "s1"}}, longest + 1, errUnacknowledged},
		"of one of two":                     {"s1, s2", []sender{{Name: "s1"}, {Name: "s2"}}, 0, ErrNotSynchronous},
		"of nobody":                         {"", []sender{{Name: "s1"}}, 0, ErrNotSynchronous},
	} {
		text, err := json.Marshal(tt.streams)
		if err != nil {
			t.Fatal(err)
		}
		all, err := senders(string(text))
		if err != nil {
			t.Fatal(err)
		}
		r := replication{SynchronousStandbysRow: db.SynchronousStandbysRow{StandbyNames: tt.setting}, senders: all}
		if err := r.prove(tt.took, longest); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	if _, err := senders("no list"); err == nil {
		t.Error("what is no list was read as one")
	}
}
