//go:build unix

package pgcluster

import (
	"context"
	"fmt"
	"os"
	"sync"
)

// Shared is one cluster for all the tests of a package, started when the first test asks for it:
//
//	var shared = pgcluster.NewShared()
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Around(m)) }
//	func TestX(t *testing.T)    { c := shared.Get(t) … }
//
// Tests that run in parallel may all use it, as long as only one calls the cluster's methods other than
// DSN, and none breaks it for the others.
type Shared struct {
	start func() (*Cluster, error)
	stop  func() error
}

// NewShared returns a Shared whose cluster will be started with the options.
func NewShared(opts ...Option) *Shared {
	var cluster *Cluster
	return &Shared{
		start: sync.OnceValues(func() (c *Cluster, err error) {
			cluster, err = Start(context.Background(), opts...)
			return cluster, err
		}),
		stop: func() error {
			if cluster == nil {
				return nil
			}
			return cluster.Stop()
		},
	}
}

// Get returns the cluster. It ends the test with a fatal error if the cluster cannot be started.
func (s *Shared) Get(t interface {
	Helper()
	Fatal(args ...any)
}) *Cluster {
	t.Helper()
	c, err := s.start()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Runner is what is needed of a *testing.M, which this package does not import.
type Runner interface{ Run() int }

// Around returns a Runner that stops the cluster after m has run its tests.
func (s *Shared) Around(m Runner) Runner { return around{s, m} }

type around struct {
	shared *Shared
	tests  Runner
}

// Run runs the tests and stops the cluster, also when a test panics.
func (a around) Run() (code int) {
	defer func() {
		if err := a.shared.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}()
	return a.tests.Run()
}
