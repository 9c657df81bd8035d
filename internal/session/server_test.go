package session

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
)

func TestWhatNoRetryHelpsIsRefused(t *testing.T) {
	server := func(learned ...func(*Server)) *Server {
		v := &Server{}
		for _, learn := range learned {
			learn(v)
		}
		return v
	}
	primary, passed := func(v *Server) { v.primary.Store(true) }, func(v *Server) { v.passed.Store(true) }
	for _, c := range []struct {
		of   *Server
		err  error
		want bool
	}{
		{server(), ErrSessionPooled, true},
		{server(), ErrNoAdvisoryLocks, true},
		{server(), ErrPoolTooSmall, true},
		{server(), ErrServerTooOld, true},
		{server(), ErrServerReadOnly, true},
		{server(), ErrSessionLost, false},
		{server(), ErrLeaseExpired, false},
		{server(), context.Canceled, false},
		{server(), driver.ErrBadConn, false},
		{server(primary), ErrServerReadOnly, false},
		{server(primary), ErrSessionPooled, true},
		{server(primary, passed), ErrSessionPooled, false},
		{server(primary, passed), ErrNoAdvisoryLocks, true},
		{server(primary, passed), ErrPoolTooSmall, true},
		{server(primary, passed), ErrServerTooOld, true},
	} {
		if got := c.of.Refuses(fmt.Errorf("wrapped: %w", c.err)); got != c.want {
			t.Errorf("refused after %v (was primary: %t, has passed: %t): %t", c.err, c.of.primary.Load(), c.of.passed.Load(), got)
		}
	}
	if server().Refuses(nil) || server().Refuses(errors.New("another")) {
		t.Error("what is no refusal is one")
	}
}
