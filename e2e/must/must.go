// Package must has the checks, the waits and the buffer that tests of several packages share.
package must

import (
	"context"
	"testing"
	"time"
)

// Patience bounds the wait for an expected event.
const Patience = 90 * time.Second

// Check fails the test and ends it if err is not nil.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Expect fails the test if err is not nil, and lets it go on.
func Expect(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Eventually waits until happened returns true.
func Eventually(t testing.TB, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}

// Soon returns a context that ends after Patience.
func Soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}
