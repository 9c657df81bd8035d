//go:build unix

package elector_test

import (
	"testing"

	"go.uber.org/goleak"
)

// A server is started only if a benchmark asks for one.
func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Around(m)) }
