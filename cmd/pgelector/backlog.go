package main

import (
	"bytes"
	"io"
	"os"
	"sync"
	"time"
)

// stderr is standard error, for the log and for why the program ends.
var stderr = &backlog{out: os.Stderr}

const (
	maxBacklog   = 8 << 20 // bytes: the log of a term of many shards that ends
	flushTimeout = time.Second
)

// A backlog writes lines in their order, but waits for no reader: a pipe that nobody reads
// must not delay the end of a command, or of a term. Lines that find it full are dropped.
type backlog struct {
	out io.Writer

	mu      sync.Mutex
	lines   [][]byte
	size    int             // of the lines
	dropped int             // lines, after those
	report  func(lines int) // writes to out how many were dropped
	written chan struct{}   // closed when no line is left; nil if none is
}

// Write never fails.
func (b *backlog) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dropped > 0 || b.size > 0 && b.size+len(line) > maxBacklog {
		b.dropped++
		return len(line), nil
	}
	b.lines = append(b.lines, bytes.Clone(line))
	b.size += len(line)
	if b.written == nil {
		b.written = make(chan struct{})
		go b.drain()
	}
	return len(line), nil
}

// drain returns when no line is left.
func (b *backlog) drain() {
	for {
		lines, dropped, report := b.take()
		if len(lines) == 0 {
			return
		}
		for _, line := range lines {
			_, _ = b.out.Write(line)
		}
		if dropped > 0 {
			report(dropped)
		}
	}
}

func (b *backlog) take() (lines [][]byte, dropped int, report func(int)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines, dropped = b.lines, b.dropped
	b.lines, b.size, b.dropped = nil, 0, 0
	if len(lines) == 0 {
		close(b.written)
		b.written = nil
	}
	return lines, dropped, b.report
}

// reportBy sets how to say that lines were dropped.
func (b *backlog) reportBy(report func(lines int)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.report = report
}

// flush waits until all lines are written, for a second at most.
func (b *backlog) flush() {
	b.mu.Lock()
	written := b.written
	b.mu.Unlock()
	if written == nil {
		return
	}
	select {
	case <-written:
	case <-time.After(flushTimeout):
	}
}
