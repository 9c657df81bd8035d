package gate

import (
	"testing"
	"testing/synctest"
	"time"
)

// It may count while its session ends, if the process stands still between the two.
func TestWorkThatDoesNotBeginIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New()
		go g.Begin(func() bool { time.Sleep(time.Second); return false })
		synctest.Wait()
		g.Close()
		if !g.IsIdle() {
			t.Error("it is waited for")
		}
	})
}

func TestNoWorkBeginsOnceTheGateIsClosed(t *testing.T) {
	g := New()
	for range 2 {
		if !g.Begin(Always) {
			t.Fatal("no work may begin")
		}
		g.Finish()
	}
	g.Begin(Always)
	g.Close()
	if g.Begin(Always) {
		t.Error("work began at a closed gate")
	}
	select {
	case <-g.Idle():
		t.Error("idle while work goes on")
	default:
	}
	g.Finish()
	<-g.Idle()
	g.Close()
}
