package wakeup

import (
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/electortest"
)

// All that come while a statement is under way go in the next one.
func TestOneStatementNotifiesAtATime(t *testing.T) {
	for range 10 { // two may be added before the first is taken
		synctest.Test(t, func(t *testing.T) {
			server := electortest.NewServer()
			defer server.Close()
			var sent []string
			statements, busy := 0, false
			server.Trace(func(e electortest.Event) {
				if e.What != "Notify" {
					return
				}
				if e.Done != busy {
					t.Error("two statements at a time")
				}
				if busy = !e.Done; busy {
					return
				}
				var payloads []string
				if err := json.Unmarshal([]byte(e.Args[1].(string)), &payloads); err != nil {
					t.Error(err)
				}
				statements++
				sent = append(sent, payloads...)
			})
			process := server.NewProcess()
			process.SetLatency(func() time.Duration { return time.Second })
			pool := process.Open()
			defer pool.Close()
			s := NewSender(pool, "elections", time.Minute)
			s.add("one")
			s.add("two")
			synctest.Wait()
			s.add("three")
			s.Send(t.Context(), time.Minute, "four")
			if !slices.Equal(sent, []string{"one", "two", "three", "four"}) || statements > 3 {
				t.Errorf("%d statements sent %q", statements, sent)
			}
		})
	}
}
