//go:build unix

package runner

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/supervise"
)

func TestAHealthCommandDecidesByItsExitCodeAndSaysWhy(t *testing.T) {
	reaper, err := supervise.NewReaper()
	if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]struct {
		score float64
		why   string
	}{
		"true":                           {1, ""},
		"echo first; echo 'load is 2'":   {1, "load is 2"},
		"echo disk full >&2; exit 3":     {0, "disk full"},
		"exit 1":                         {0, "the health command ended with 1"},
		"yes | head -c 100000; echo end": {1, "end"},
	} {
		if got := checkBy(t.Context(), reaper, command); got.Score != want.score || got.Why != want.why {
			t.Errorf("%s: got %+v", command, got)
		}
	}
}

func TestAHealthCommandThatHangsIsKilledWithWhatItStarted(t *testing.T) {
	reaper, err := supervise.NewReaper()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	began := time.Now()
	if got := checkBy(ctx, reaper, "sleep 1000 & sleep 1000"); got.Score != 0 || !strings.Contains(got.Why, "did not end") || time.Since(began) > 30*time.Second {
		t.Errorf("got %+v after %v", got, time.Since(began))
	}
}
