//go:build unix

package e2e_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgelector/pgelector/elector"
	"github.com/pgelector/pgelector/hooks"
	"github.com/pgelector/pgelector/hooks/hookstest"
)

// A frozen server accepts connections, by its kernel, and never answers. A driver that is
// given several hosts tries the next after connect_timeout, which is longer than a short
// lease is valid.
func TestAFrozenFirstHostDoesNotStopAnElection(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		frozen, living := own(t), own(t)
		check(t, frozen.Freeze())
		t.Cleanup(func() { check(t, frozen.Thaw()) })
		s := on(t, living)
		address := func(hosts, ports string) string {
			return fmt.Sprintf("host=%s port=%s user=postgres dbname=postgres sslmode=disable connect_timeout=3", hosts, ports)
		}

		c := s.stand(t, d.open(t, 0, address("127.0.0.1,127.0.0.1", fmt.Sprintf("%d,%d", frozen.Port(), living.Port()))), s.election(t), elector.WithLease(time.Second)).run(t, nil)
		c.elected(t)

		alone := s.stand(t, d.open(t, 0, address("127.0.0.1", fmt.Sprint(frozen.Port()))), s.election(t))
		alone.poolClosed = true // nothing is usable there
		alone.run(t, nil)
		f := wait[hooks.Failure](t, alone, nil)
		if !strings.Contains(f.Err.Error(), fmt.Sprintf("127.0.0.1:%d", frozen.Port())) {
			t.Errorf("the error does not name the host: %v", f.Err)
		}
	})
}

// Without connect_timeout only the elector's own bound ends an attempt. lib/pq's call
// goes on until the server does.
func TestADialThatHangsSaysWhatToSet(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, d drivers) {
		frozen := own(t)
		check(t, frozen.Freeze())
		s := on(t, frozen)
		address := fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable", frozen.Port())
		var thaw sync.Once
		goOn := func() { thaw.Do(func() { check(t, frozen.Thaw()) }) }
		t.Cleanup(goOn)
		c := s.stand(t, d.open(t, 0, address), s.election(t)).run(t, nil)
		f, err := hookstest.Next[hooks.Failure](t.Context(), c.rec.Cursor(), nil) // later than others wait
		check(t, err)
		if !strings.Contains(f.Err.Error(), "within 30s") || !strings.Contains(f.Err.Error(), "connect_timeout") {
			t.Errorf("the error does not say what to set: %v", f.Err)
		}
		goOn()
		c.elected(t)
	})
}
