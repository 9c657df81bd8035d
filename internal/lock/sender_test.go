package lock

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/electortest"
)

// All that come while a statement is under way go in the next one.
func TestNotificationsThatWaitAreSentInOneStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := electortest.NewServer()
		defer server.Close()
		var began, sent []any
		server.Trace(func(e electortest.Event) {
			switch {
			case e.What == "Notify" && e.Done:
				sent = append(sent, e.Args[1])
			case e.What == "Notify":
				began = append(began, e.Args[1])
				if len(began) != len(sent)+1 {
					t.Errorf("%v began before %v was sent", began, began[len(sent):])
				}
			}
		})
		process := server.NewProcess()
		process.SetLatency(func() time.Duration { return time.Second })
		pool := process.Open()
		defer pool.Close()
		s := NewSender(pool, "elections", time.Minute)
		var all sync.WaitGroup
		for _, payload := range []string{"first", "second", "third"} {
			all.Go(func() { s.Send(t.Context(), time.Minute, payload) })
			synctest.Wait() // the order of the payloads
		}
		all.Wait()
		want := []any{`["first"]`, `["second","third"]`}
		if len(sent) != 2 || sent[0] != want[0] || sent[1] != want[1] {
			t.Errorf("sent %v, want %v", sent, want)
		}
	})
}
