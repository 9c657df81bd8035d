package elector_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/electortest"
)

// mostFrames may only fall, inlined calls included. Half are the check of the server: a part, whose statement is the first.
// The call that may not return (pin, backoff) has functions on two goroutines. The kernel itself has eight.
const mostFrames = 33

func stacksOfAll() string {
	all := make([]byte, 1<<20)
	return string(all[:runtime.Stack(all, true)])
}

// framesOf lists the functions of this module on the goroutines of Run and of the statement.
func framesOf(stacks string) (frames []string) {
	for _, stack := range strings.Split(stacks, "\n\n") {
		if !strings.Contains(stack, "(*Elector).Run(") && !strings.Contains(stack, "db.(*Queries)") {
			continue
		}
		for line := range strings.Lines(stack) {
			name, ok := strings.CutPrefix(line, "github.com/pgelector/pgelector/")
			if ok && !strings.Contains(name, "_test.") && !strings.HasPrefix(name, "electortest.") {
				frames = append(frames, strings.TrimSpace(name))
			}
		}
	}
	return frames
}

func TestFewFramesLieBetweenRunAndTheFirstStatement(t *testing.T) {
	server := electortest.NewServer()
	defer server.Close()
	var first sync.Once
	stacks := ""
	process := server.NewProcess()
	process.SetLatency(func() time.Duration { // each statement asks for it
		if all := stacksOfAll(); strings.Contains(all, "db.(*Queries)") {
			first.Do(func() { stacks = all })
		}
		return 0
	})
	pool := process.Open()
	defer func() { _ = pool.Close() }()
	e, err := elector.New(pool, "frames")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Run(t.Context(), func(context.Context, *elector.Term) error { return nil }); err != nil {
		t.Fatal(err)
	}
	frames := framesOf(stacks)
	t.Logf("%d frames", len(frames)) // tools/core prints that
	if len(frames) > mostFrames || len(frames) < 10 {
		t.Errorf("%d frames, at most %d:\n%s", len(frames), mostFrames, strings.Join(frames, "\n"))
	}
	for _, part := range []string{"syncrep", "handover", "fenced", "shared", "transaction", "wakeup"} {
		if strings.Contains(strings.Join(frames, "\n"), "internal/"+part+".") {
			t.Errorf("the part %s is turned off, and is called", part)
		}
	}
}
