package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

// gate is a writer that waits until it is open.
type gate struct {
	open chan struct{}
	text strings.Builder
}

func (g *gate) Write(line []byte) (int, error) {
	<-g.open
	return g.text.Write(line)
}

func TestALogWaitsForNoReaderAndCountsTheLinesItDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &gate{open: make(chan struct{})}
		b := &backlog{out: out}
		b.reportBy(func(lines int) { fmt.Fprintf(&out.text, "dropped %d\n", lines) })
		half := strings.Repeat("x", maxBacklog/2-1) + "\n"
		began := time.Now()
		fmt.Fprintln(b, "first")
		synctest.Wait() // for the goroutine that writes it, and waits
		for _, line := range []string{half, half, "more\n", "than fits\n"} {
			fmt.Fprint(b, line)
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the log waited for %v", waited)
		}
		if b.flush(); time.Since(began) != flushTimeout {
			t.Errorf("the end waited for %v, want %v", time.Since(began), flushTimeout)
		}
		close(out.open)
		synctest.Wait()
		fmt.Fprintln(b, "last")
		if b.flush(); time.Since(began) != flushTimeout {
			t.Error("the end waited, although the log is read")
		}
		if want := "first\n" + half + half + "dropped 2\nlast\n"; out.text.String() != want {
			t.Errorf("wrote %.200q", strings.ReplaceAll(out.text.String(), half, "half "))
		}
	})
}

// Shards have loggers of their own.
func TestTheLinesOfAShardAreLikeAllOthers(t *testing.T) {
	var text strings.Builder
	logger := lines{hclog.New(&hclog.LoggerOptions{JSONFormat: true, Output: &text}), true}
	logger.With("shard", "eu").Info("ended", "grace", 2*time.Second, "error", errors.New("one\ntwo"))
	for _, want := range []string{`"shard":"eu"`, `"grace_ms":2000`, `"error":"one two"`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("logged %s, want %s", &text, want)
		}
	}
}

func TestWhatAServerSaysDoesNotControlTheTerminal(t *testing.T) {
	var out strings.Builder
	fmt.Fprint(plain{&out}, "a role \x1b[2J\x7f\u009b\u202e\u2066, a\ttab\n")
	if want := "a role \\u001b[2J\\u007f\\u009b\\u202e\\u2066, a\ttab\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
