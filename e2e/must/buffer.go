package must

import (
	"strings"
	"sync"
)

// A Buffer may be read while it is written. The zero Buffer is empty.
type Buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write appends p. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
