//go:build unix

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/e2e/history"
)

func TestTheReportShowsAFailedProof(t *testing.T) {
	var out strings.Builder
	report{out: &out}.print(
		[]outcome{{number: 1, title: "first election", new: "A", token: 7, headless: 1234 * time.Millisecond}},
		[]history.Proof{
			{Claim: "all is well", Checked: "one thing; another"},
			{Claim: "no two led at once", Checked: "2 terms", Violations: []string{"A and B both led"}},
		})
	want := `
What happened:
┌──────────────────┬────────────┬────────────┬───────┬──────────────────┐
│ scene            │ old leader │ new leader │ token │ without a leader │
├──────────────────┼────────────┼────────────┼───────┼──────────────────┤
│ 1 first election │ –          │ A          │ 7     │ 1.23 s           │
└──────────────────┴────────────┴────────────┴───────┴──────────────────┘

Proof, from what the processes recorded:
  ok    all is well
        one thing
        another
  FAIL  no two led at once
        2 terms
        A and B both led
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

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
