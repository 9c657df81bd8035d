package syncrep

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/db"
	"github.com/pgelector/pgelector/internal/lockkey"
	"github.com/pgelector/pgelector/internal/pgerr"
)

func TestEveryStandbyThatIsListedMustAcknowledge(t *testing.T) {
	for setting, want := range map[string][]string{
		"s1":                             {"s1"},
		" \t\r\n\f\vs1 ":                 {"s1"},
		"FIRST 1 (s1)":                   {"s1"},
		"first 2(s1,s2)":                 {"s1", "s2"},
		"ANY 2 (s1, s2)":                 {"s1", "s2"},
		"aNy 01 (s1)":                    {"s1"},
		"2 (s1, s2)":                     {"s1", "s2"},
		`FIRST 1 ("s 1")`:                {"s 1"},
		`"say ""hi""", "b"`:              nil, // a list without a number means one
		`FIRST 2 ("say ""hi""","""")`:    {`say "hi"`, `"`},
		`FIRST 3 ("any", "first", "(,")`: {"any", "first", "(,"},
		"FIRST 3 (_a$1, 2, été)":         {"_a$1", "2", "été"},
		"FIRST 2 (\"@\", \"`\")":         {"@", "`"},
		`FIRST 1 ("")`:                   {""},

		"":                               nil,
		"*":                              nil,
		`"*"`:                            nil, // the same to the server
		"FIRST 1 (*)":                    nil,
		"FIRST 2 (*, s1)":                nil,
		"s1, s2":                         nil,
		"FIRST 1 (s1, s2)":               nil,
		"ANY 1 (s1, s2)":                 nil,
		"FIRST 2 (s1)":                   nil,
		"FIRST 2 (s1, S1)":               nil, // the server ignores case
		"FIRST 2 (aZ, Az)":               nil,
		`FIRST 2 (s1, "s1")`:             nil,
		"FIRST 9223372036854775808 (s1)": nil,
	} {
		got, err := ListedStandbys(setting)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: got %q, %v; want %q", setting, got, err, want)
		}
		if err != nil && (!errors.Is(err, pgerr.ErrNotSynchronous) || !strings.Contains(err.Error(), "'"+setting+"'")) {
			t.Errorf("%q: the error does not name the setting: %v", setting, err)
		}
		if err != nil && (strings.Contains(err.Error(), "syntax") || strings.Contains(err.Error(), "name each") != (setting == "" || strings.Contains(setting, "*"))) {
			t.Errorf("%q: the error does not say what to do: %v", setting, err)
		}
	}
}

func TestAListOfStandbysWithAnUnknownSyntaxIsRefused(t *testing.T) {
	for _, setting := range []string{
		"FIRST 0 (s1)", "FIRST (s1)", "FIRST 1 s1", "FIRST 1 (s1", "FIRST 1 s1)", "FIRST 1 ()", "FIRST 1 (s1,)", "FIRST 1 (,s1)", "FIRST 1 (s1 s2)",
		"FIRST 2 (s1 s2 s3)", "FIRST 1 (s1) s2", "FIRST 1 (s1))", `FIRST "1" (s1)`, "FIRST 1.5 (s1)", "FIRST -1 (s1)", "FIRST ANY 1 (s1)", "FIRST s1 (s1)",
		`"any" 1 (s1)`, `FIRST 1 "(" s1)`, "first", "any", "any 1", "s1,", ",s1", "s1 s2", "()", ")", "1 , s1 )", `"s1`, `"s1""`, "s1-2", "$s1", "2s", // a number and a name
		"FIRST 1 (\x00)", "FIRST 1 (s1) -- s2", "FIRST 1 (s1), ANY 1 (x)",
	} {
		if got, err := ListedStandbys(setting); got != nil || !errors.Is(err, pgerr.ErrNotSynchronous) || !strings.Contains(err.Error(), "'"+setting+"': it has a syntax that is not known") {
			t.Errorf("%q: got %q, %v", setting, got, err)
		}
	}
}

// A list that is accepted must mean the same when it is written out in full.
func FuzzAListOfStandbysIsReadAsItIsWritten(f *testing.F) {
	for _, seed := range []string{"FIRST 2 (s1, s2)", `ANY 1 ("a""b")`, "*", "", `"x`, "first 1 (2)", "FIRST 1 (é$)"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, setting string) {
		names, err := ListedStandbys(setting)
		if err != nil {
			if names != nil || !errors.Is(err, pgerr.ErrNotSynchronous) {
				t.Errorf("%q: %q, %v", setting, names, err)
			}
			return
		}
		var quoted []string
		for _, name := range names {
			if name == "*" || !strings.Contains(strings.ReplaceAll(setting, `""`, `"`), name) {
				t.Errorf("%q: name %q", setting, name)
			}
			quoted = append(quoted, `"`+strings.ReplaceAll(name, `"`, `""`)+`"`)
		}
		full := fmt.Sprintf("ANY %d (%s)", len(names), strings.Join(quoted, " , "))
		if again, err := ListedStandbys(full); err != nil || !slices.Equal(again, names) {
			t.Errorf("%q: names %q, but as %q: %q, %v", setting, names, full, again, err)
		}
	})
}

func TestAStandbyStreamsOnceByEachName(t *testing.T) {
	all := func(names ...string) (all []sender) {
		for _, name := range names {
			all = append(all, sender{Name: name})
		}
		return all
	}
	for _, tt := range []struct {
		listed          []string
		streams         []sender
		present, unique bool
	}{
		{[]string{"s1"}, all("s1"), true, true},
		{[]string{"S1", "s2"}, all("s1", "other", "S2", "other"), true, true},
		{[]string{"s1", "s2"}, all("s1"), false, true},
		{[]string{"s1"}, all(), false, true},
		{[]string{"s1"}, all("s1", "s1"), false, false},
		{[]string{"s1"}, all("S1", "s1"), false, false},
		{[]string{"\u212a"}, all("K"), false, true}, // a Kelvin sign is no K to the server
	} {
		if err := checkStreams(tt.listed, tt.streams); (err == nil) != tt.present || err != nil && !errors.Is(err, pgerr.ErrNotSynchronous) {
			t.Errorf("%q listed, %v stream: %v", tt.listed, tt.streams, err)
		}
		if err := checkAlone(tt.listed, tt.streams); (err == nil) != tt.unique {
			t.Errorf("%q listed, %v stream: alone %v", tt.listed, tt.streams, err)
		}
	}
}

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
		"no standby streams":                     {func(a *acknowledgement) { a.streams() }, errUnacknowledged},
		"one of the standbys does not stream":    {func(a *acknowledgement) { a.streams(sender{"s1", false}, sender{"x", false}) }, errUnacknowledged},
		"a standby is behind":                    {func(a *acknowledgement) { a.streams(sender{"s1", false}, sender{"S2", true}) }, errUnacknowledged},
		"two standbys have one name":             {func(a *acknowledgement) { a.streams(sender{"s1", false}, sender{"S1", false}) }, errUnacknowledged},
		"too slow: it may have been cancelled":   {func(a *acknowledgement) { a.took++ }, errUnacknowledged},
		"another commit waits":                   {func(a *acknowledgement) { a.commit.Outcome = "waiting" }, errUnacknowledged},
		"reloaded":                               {func(a *acknowledgement) { a.now.Loaded++ }, errUnacknowledged},
		"changed to a sufficient setting":        {func(a *acknowledgement) { a.now.StandbyNames = "ANY 2 (s1, s2)" }, errUnacknowledged},
		"changed to an insufficient setting":     {func(a *acknowledgement) { a.now.StandbyNames = "FIRST 1 (s1, s2)" }, pgerr.ErrNotSynchronous},
		"one of two must acknowledge":            {func(a *acknowledgement) { a.setting("s1, s2") }, pgerr.ErrNotSynchronous},
		"nobody must acknowledge":                {func(a *acknowledgement) { a.setting("") }, pgerr.ErrNotSynchronous},
		"on a standby":                           {func(a *acknowledgement) { a.commit.Outcome = "standby" }, errElsewhere},
		"on a server without the session's lock": {func(a *acknowledgement) { a.commit.Outcome = "elsewhere" }, errElsewhere},
		"on another backend":                     {func(a *acknowledgement) { a.now.Pid++ }, pgerr.ErrSessionPooled},
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

// Package e2e/protocol checks the other vectors of that page.
func TestTheKeyOfCommitsIsThatOfTheProtocol(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	high, low := lockkey.Halves(lockkey.Of("commit", lockkey.FromName("orders")))
	if row := fmt.Sprintf("\n%-22s %d, %d\n", "commit", high, low); !strings.Contains(string(page), row) {
		t.Errorf("the page lacks%s", row)
	}
}
