//go:build unix

package main

import (
	"bytes"
	"context"
	"testing"
)

// untilWriter ends a context when a text is written.
type untilWriter struct {
	text   []byte
	cancel context.CancelFunc
}

func (w untilWriter) Write(p []byte) (int, error) {
	if bytes.Contains(p, w.text) {
		w.cancel()
	}
	return len(p), nil
}

func contextUntil(t *testing.T, text string) (context.Context, untilWriter) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, untilWriter{[]byte(text), cancel}
}
