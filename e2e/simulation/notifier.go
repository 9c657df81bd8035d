package simulation

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/pgelector/pgelector/electortest"
)

// An unreliableNotifier is the notifier of all candidates. It loses, delays or repeats each
// notification.
type unreliableNotifier struct {
	*chance
	mu         sync.Mutex
	wake       map[int]func(payload string) // by subscriber
	subscribed int                          // how many subscribers there were
	slowest    time.Duration
}

func newNotifier(w *world) *unreliableNotifier {
	return &unreliableNotifier{chance: w.newChance(99, 0, 0), wake: map[int]func(string){}, slowest: w.plan.Retry}
}

// Subscribe implements elector.Notifier.
func (u *unreliableNotifier) Subscribe(wake func(payload string)) (unsubscribe func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.subscribed++
	n := u.subscribed
	u.wake[n] = wake
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.wake, n)
	}
}

// trace receives each step of the server.
func (u *unreliableNotifier) trace(e electortest.Event) {
	if !e.Done || e.Err != nil || e.What != "UnlockAndNotify" && e.What != "UnlockMany" && e.What != "Notify" {
		return
	}
	last := e.Args[len(e.Args)-1].(string)
	sent := []struct{ Payload string }{{last}}
	if e.What == "UnlockMany" {
		_ = json.Unmarshal([]byte(last), &sent)
	}
	for _, n := range sent {
		for range u.draw(0, 3) { // lost, once, or twice
			time.AfterFunc(u.draw(0, u.slowest), func() { u.deliver(n.Payload) })
		}
	}
}

func (u *unreliableNotifier) deliver(payload string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for n := range u.subscribed + 1 {
		if wake := u.wake[n]; wake != nil {
			wake(payload)
		}
	}
}
