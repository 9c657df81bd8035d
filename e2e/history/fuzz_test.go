//go:build unix

package history

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// Whatever is collected says the same when it is written and read again, and is
// judged without a panic, in whatever order it came.
func FuzzALogIsReadAndJudged(f *testing.F) {
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
