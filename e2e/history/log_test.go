//go:build unix

package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestALogCollectsWhatARecorderWrites(t *testing.T) {
	var lines bytes.Buffer
	r := NewRecorder(&lines, "A")
	before := Now()
	r.Record(Event{Kind: Hello, Text: "pgx"})
	r.Record(Event{Kind: Sample, At: 5, Took: 3, Leading: true, Token: 1<<48 | 745, Deadline: 9})
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	var log Log
	if err := log.Collect(&lines); err != nil {
		t.Fatal(err)
	}
	events := log.Since(0)
	if len(events) != 2 || events[0].At < before || events[0].Text != "pgx" {
		t.Fatalf("got %+v", events)
	}
	if want := (Event{Process: "A", Seq: 2, Kind: Sample, At: 5, Took: 3, Leading: true, Token: 1<<48 | 745, Deadline: 9}); events[1] != want {
		t.Errorf("got %+v, want %+v", events[1], want)
	}
}

func TestCollectFailsOnALineThatIsNotAnEvent(t *testing.T) {
	if err := new(Log).Collect(strings.NewReader("{\"process\":\"A\"}\npanic: oh\n")); err == nil || !strings.Contains(err.Error(), "panic: oh") {
		t.Errorf("got %v", err)
	}
}

func TestAwaitReturnsTheNextEvents(t *testing.T) {
	var log Log
	go log.Add(Event{Process: "A"})
	events, err := log.Await(t.Context(), 0)
	if err != nil || len(events) != 1 {
		t.Fatalf("got %v, error %v", events, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := log.Await(ctx, 1); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause of the context", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestARecorderKeepsItsFirstError(t *testing.T) {
	r := NewRecorder(full{}, "A")
	r.Record(Event{Kind: Hello})
	r.Record(Event{Kind: Bye})
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "record hello: disk full") {
		t.Errorf("got %v", err)
	}
}

// Events keep their content when they are written and read again, and Verify does not
// panic on any order of events.
func FuzzCollectAndVerify(f *testing.F) {
	f.Add([]byte(`{"process":"a","seq":1,"at":1,"kind":"hello","pid":7}` + "\n" +
		`{"process":"a","seq":2,"at":5,"kind":"elected","token":9}` + "\n" +
		`{"process":"a","seq":3,"at":6,"kind":"sample","took":2,"leading":true,"token":9,"deadline":40}` + "\n" +
		`{"process":"b","at":7,"kind":"killed"}` + "\n"))
	f.Add([]byte(`{"process":"a","at":-1,"kind":"wrote","way":"token","token":-3}` + "\n"))
	for _, lines := range []string{"{}\n\n", `{"seq":1e99}`, `{"a":0}`, "{", "[0", "10", `"0"`, "\"\x80\"", "\"0\xff", "'", "\b", "\x7f\xff"} {
		f.Add([]byte(lines))
	}
	f.Fuzz(func(t *testing.T, lines []byte) {
		var log Log
		_ = log.Collect(bytes.NewReader(lines)) // what came before an error was collected
		events := log.Since(0)
		var written bytes.Buffer
		for _, e := range events {
			line, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			written.Write(append(line, '\n'))
		}
		var again Log
		if err := again.Collect(&written); err != nil {
			t.Fatal(err)
		}
		if read := again.Since(0); len(events) > 0 && !reflect.DeepEqual(read, events) {
			t.Errorf("wrote %+v, read %+v", events, read)
		}
		if proofs := Verify(events, time.Second); len(proofs) == 0 {
			t.Error("nothing was proved or refuted")
		}
		LateWrites(events)
	})
}
