package electortest_test

import (
	"context"
	"testing"
	"time"
)

// An heir that is thrown out of the queue while it is called comes back to it.
func TestAnHeirThatLosesItsConnectionComesAgain(t *testing.T) {
	bubble(t, func(b *bench) {
		leader := b.seat("leader")
		term, err := leader.Campaign(context.Background())
		b.wraps(err)
		heir := b.run("heir")
		b.run("other")
		work := make(chan bool)
		ran := make(chan error)
		go func() {
			_, err := leader.RunIfLeader(context.Background(), func(ctx context.Context) error {
				<-ctx.Done() // the heir is there
				for _, l := range b.Locks() {
					if l.Key == leader.Key() && !l.Granted {
						b.Terminate(l.PID)
					}
				}
				close(work)
				time.Sleep(1500 * time.Millisecond) // in which it fails, and looks for the lock again
				return nil
			})
			ran <- err
		}()
		time.Sleep(time.Second)
		b.wraps(term.ResignTo(context.Background(), "heir"))
		<-work
		b.wraps(<-ran)
		b.leads(heir)
	})
}
