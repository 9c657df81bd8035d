//go:build linux

package main

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/pgelector/pgelector/e2e/history"
	"github.com/pgelector/pgelector/e2e/must"
)

// The system accepts connections to a frozen server, which answers them in turn when it thaws.
func TestAProbeOfAFrozenServerKeepsItsPlaceInTheQueue(t *testing.T) {
	frozen, err := net.Listen("tcp", "127.0.0.1:0")
	must.Check(t, err)
	var begun atomic.Int32
	go func() {
		for {
			conn, err := frozen.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			begun.Add(1)
		}
	}()
	defer frozen.Close()
	ctx, stop := context.WithTimeout(t.Context(), 3*unanswered)
	defer stop()
	(&probe{kind: history.Primary, addr: frozen.Addr().String(), log: new(history.Log)}).run(ctx)
	if n := begun.Load(); n != 1 {
		t.Errorf("began %d connections", n)
	}
}
