package elector

import (
	"context"
	"testing"
)

func TestNoWorkBeginsAfterTheEnd(t *testing.T) {
	w := newWork()
	for range 2 {
		if !w.begin(always) {
			t.Fatal("no work may begin")
		}
		w.finish()
	}
	w.begin(always)
	w.end()
	if w.begin(always) {
		t.Error("work began after the end")
	}
	select {
	case <-w.idle:
		t.Error("idle while work goes on")
	default:
	}
	w.finish()
	<-w.idle
	w.end()
	term := &Term{work: w, ctx: t.Context()}
	if err := term.doWork(func(context.Context, *Term) error { t.Error("lead was called"); return nil }); err != nil {
		t.Error(err)
	}
}
