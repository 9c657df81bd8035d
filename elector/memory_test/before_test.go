package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgelector/pgelector/hooks"
)

func TestAnElectionSaysWhoLedBeforeAndForHowLongNobodyLed(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one")
		b.leads(one)
		two := b.run("two")
		time.Sleep(3 * heartbeat) // it becomes the deputy, and looks each 100 ms
		one.process.Kill()
		b.leads(two)
		synctest.Wait() // the hooks run beside the term
		e := two.rec.Elected()[0]
		if e.Previous != "one" || e.PreviousReason != "" || e.Leaderless <= 0 || e.Leaderless > 200*time.Millisecond || e.Campaigned < 3*heartbeat {
			b.Errorf("elected: %+v", e)
		}
	})
}

func TestTheFirstLeaderKnowsOfNobodyBefore(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one")
		b.leads(one)
		synctest.Wait()
		if e := one.rec.Elected()[0]; e.Previous != "" || e.PreviousReason != "" || e.Leaderless != 0 {
			b.Errorf("elected: %+v", e)
		}
	})
}

func TestALeaderThatIsElectedAgainSaysWhyItsLastTermEnded(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one")
		b.leads(one)
		time.Sleep(heartbeat)
		b.Terminate(b.pid(one))
		time.Sleep(heartbeat)
		b.leads(one)
		synctest.Wait()
		e, ended := one.rec.Elected()[1], one.rec.Demoted()[0]
		if e.Previous != "one" || e.PreviousReason != hooks.SessionLost || e.Leaderless != e.At.Sub(ended.At) {
			b.Errorf("elected: %+v, after %+v", e, ended)
		}
	})
}

func TestACandidateThatWasOfferedTheLockSaysSo(t *testing.T) {
	bubble(t, func(b *bench) {
		one := b.run("one")
		b.leads(one)
		two := b.run("two")
		time.Sleep(3 * heartbeat)
		term, _ := one.Term()
		b.wraps(term.TransferTo(always, "two"))
		b.leads(two)
		synctest.Wait()
		if e := two.rec.Elected()[0]; e.Previous != "one" || !e.Offered || one.rec.Elected()[0].Offered {
			b.Errorf("elected: %+v", e)
		}
	})
}
