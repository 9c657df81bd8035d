package hcloghooks_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/pgelector/pgelector/hooks"
	hcloghooks "github.com/pgelector/pgelector/hooks/hclog"
)

var ctx = context.Background()

func TestANilLoggerIsTheDefaultOne(t *testing.T) {
	var out bytes.Buffer
	before := hclog.Default()
	hclog.SetDefault(hclog.New(&hclog.LoggerOptions{Output: &out}))
	defer hclog.SetDefault(before)
	hcloghooks.New(nil).OnElected(ctx, hooks.Elected{})
	if !strings.Contains(out.String(), "elected") {
		t.Errorf("the default logger got %q", out.String())
	}
}

func TestEachLevelIsTheLoggersOwn(t *testing.T) {
	var out bytes.Buffer
	h := hcloghooks.New(hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Trace, DisableTime: true}))
	h.OnHeartbeat(ctx, hooks.Heartbeat{})
	h.OnElected(ctx, hooks.Elected{})
	h.OnError(ctx, hooks.Failure{Op: hooks.OpCall})
	h.OnError(ctx, hooks.Failure{Op: hooks.OpWork})
	lines := strings.Split(out.String(), "\n")
	for i, level := range []string{"[TRACE]", "[INFO]", "[WARN]", "[ERROR]"} {
		if !strings.HasPrefix(lines[i], level) {
			t.Errorf("want level %s: %s", level, lines[i])
		}
	}
}
