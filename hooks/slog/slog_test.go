package sloghooks_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/hooks"
	sloghooks "github.com/pgelector/pgelector/hooks/slog"
)

var ctx = context.Background()

func TestANilLoggerIsTheDefaultOne(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	defer slog.SetDefault(before)
	sloghooks.New(nil).OnElected(ctx, hooks.Elected{})
	if !strings.Contains(out.String(), "msg=elected") {
		t.Errorf("the default logger got %q", out.String())
	}
}

func TestEachLevelIsTheLoggersOwn(t *testing.T) {
	var out bytes.Buffer
	h := sloghooks.New(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: sloghooks.LevelTrace})))
	h.OnHeartbeat(ctx, hooks.Heartbeat{})
	h.OnElected(ctx, hooks.Elected{})
	h.OnError(ctx, hooks.Failure{Op: hooks.OpCall})
	h.OnError(ctx, hooks.Failure{Op: hooks.OpWork})
	lines := strings.Split(out.String(), "\n")
	for i, level := range []string{"DEBUG-4", "INFO", "WARN", "ERROR"} {
		if !strings.Contains(lines[i], "level="+level+" ") {
			t.Errorf("want level %s: %s", level, lines[i])
		}
	}
}
