//go:build linux

package replay

import (
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
)

func framed(kind string, body string) string {
	size := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
	return kind + string(size) + body
}

var startup = framed("", "\x00\x03\x00\x00user\x00a\x00\x00")

// taped feeds both streams to a wire, in pieces of so many bytes.
func taped(client, server string, piece int) []Event {
	var tape Tape
	w := tape.Watch("a1")
	feed := func(s string, read func([]byte)) {
		for len(s) > 0 {
			n := min(piece, len(s))
			read([]byte(s[:n]))
			s = s[n:]
		}
	}
	feed(client, w.Client)
	feed(server, w.Server)
	w.Closed(true)
	w.Closed(false)
	var all []Event
	for _, e := range tape.Events(nil) {
		e.At = 0
		all = append(all, e)
	}
	return all
}

func TestBothProtocolsAreReadInPiecesOfAnySize(t *testing.T) {
	client := startup + framed("Q", "-- name: Ping :one\nSELECT 1\x00") +
		framed("P", "s1\x00-- name: TryLock :one\nSELECT\x00\x00\x00") + framed("S", "") +
		framed("B", "\x00s1\x00rest") + framed("E", "\x00\x00\x00\x00\x00") + framed("S", "")
	ready := framed("Z", "I")
	server := framed("R", "\x00\x00\x00\x00") + ready[:0] + framed("D", "\x00\x02\x00\x00\x00\x01t\x00\x00\x00\x04\x00\x00\x00\x07") + framed("C", "SELECT 1\x00") + ready +
		ready + framed("D", "\x00\x01\x00\x00\x00\x07granted") + framed("C", "SELECT 1\x00") + ready +
		framed("E", "SFATAL\x00VFATAL\x00C57P01\x00Mtext\x00\x00")
	want := []Event{
		{Kind: Opened}, {Kind: Sent, Statement: "Ping"}, {Kind: Sent, Statement: "TryLock"},
		{Kind: Answered, Statement: "Ping", Row: []string{"t", "7"}, Tag: "SELECT 1"},
		{Kind: Answered, Statement: "TryLock", Row: []string{"granted"}, Tag: "SELECT 1"},
		{Kind: Fatal, State: "57P01"},
	}
	for i := range want {
		want[i].Who, want[i].Conn = "a1", 1
	}
	for _, piece := range []int{1, 3, 7, 1000} {
		if got := taped(client, server, piece); !reflect.DeepEqual(got, want) {
			t.Errorf("in pieces of %d bytes:\n%+v\nwant\n%+v", piece, got, want)
		}
	}
}

func TestATapeThatCannotFollowAConnectionIsRefused(t *testing.T) {
	for name, client := range map[string]string{
		"TLS":                  framed("", "\x04\xd2\x16\x2f"),
		"joined in the middle": framed("Q", "SELECT 1\x00"),
		"an unknown protocol":  framed("", "\x00\x09\x00\x00"),
	} {
		v := Check(taped(client, "", 100), time.Second)
		if !strings.Contains(v.Rejected, "cannot follow") {
			t.Errorf("%s: %q", name, v.Rejected)
		}
	}
	if v := Check(taped(framed("", "\x04\xd2\x16\x2e\x00\x00\x00\x01\x00\x00\x00\x02"), "", 100), time.Second); v.Rejected != "" {
		t.Errorf("a cancel request: %q", v.Rejected)
	}
}

// elected are the events of a candidate that is elected on a connection, from a time on.
func elected(at history.Time, who string, conn int, token string) []Event {
	return []Event{
		{At: at, Who: who, Conn: conn, Kind: Opened},
		{At: at + 1, Who: who, Conn: conn, Kind: Sent, Statement: "TryElection"},
		{At: at + 2, Who: who, Conn: conn, Kind: Answered, Statement: "TryElection", Row: []string{"granted"}},
		{At: at + 3, Who: who, Conn: conn, Kind: Sent, Statement: "ConfirmElection"},
		{At: at + 4, Who: who, Conn: conn, Kind: Answered, Statement: "ConfirmElection", Row: []string{"t", "1", token}},
	}
}

func TestAReplaySaysWhyItRejects(t *testing.T) {
	const lease = 10 * time.Second
	second := history.Time(time.Second)
	a := elected(1, "a", 1, "5")
	works := Event{At: 10, Who: "a", Kind: Works, Token: 5}
	join := func(parts ...[]Event) (all []Event) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	one := func(e ...Event) []Event { return e }
	unlock := one(Event{At: 2 * second, Who: "a", Conn: 1, Kind: Sent, Statement: "Unlock"}, Event{At: 2*second + 1, Who: "a", Conn: 1, Kind: Answered, Statement: "Unlock", Row: []string{"t"}})
	for name, c := range map[string]struct {
		events []Event
		says   string // empty: it is accepted
	}{
		"a term":                      {join(a, one(works, Event{At: second, Who: "a", Kind: Believes, Token: 5}, Event{At: second + 1, Who: "a", Kind: Returns, Token: 5}), unlock, elected(3*second, "b", 2, "6")), ""},
		"two are granted the lock":    {join(a, elected(3*second, "b", 2, "6")), "the server grants a lock that a"},
		"the work goes on":            {join(a, one(works), unlock), "the work has returned before the unlock"},
		"it believes for too long":    {join(a, one(Event{At: 8 * second, Who: "a", Kind: Believes, Token: 5})), "must not"},
		"it works without a term":     {join(a, one(Event{At: 10, Who: "a", Kind: Works, Token: 4})), "no term has begun"},
		"a token is not larger":       {join(a, unlock, elected(3*second, "b", 2, "5")), "not larger"},
		"the connection closes early": {join(a, one(works, Event{At: second, Who: "a", Conn: 1, Kind: ClientClosed})), "the work has had the drain to return"},
	} {
		v := Check(c.events, lease)
		if c.says == "" && v.Rejected != "" || !strings.Contains(v.Rejected, c.says) {
			t.Errorf("%s: %q, want %q", name, v.Rejected, c.says)
		}
	}
}
