package otelhooks

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/pgelector/pgelector/hooks"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// kept returns how many entries the hook keeps for its spans.
func (h *Hook) kept() (n int) {
	s := reflect.ValueOf(h.spans).Elem()
	for i := range s.NumField() {
		if f := s.Field(i); f.Kind() == reflect.Map {
			n += f.Len()
		}
	}
	return n
}

func newHook(t *testing.T) *Hook {
	t.Helper()
	h, err := New(nil, tracenoop.NewTracerProvider())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestNothingIsKeptOfAnElectionThatIsClosed(t *testing.T) {
	ctx, over := t.Context(), done(t)
	for name, ends := range map[string]func(*Hook, hooks.Origin){
		"after a term": func(h *Hook, who hooks.Origin) {
			h.OnCampaign(ctx, hooks.Campaign{Origin: who, Outcome: hooks.Granted})
			h.WithTerm(ctx, who.Election, 1)
			h.OnElected(ctx, hooks.Elected{Origin: who, Token: 1})
			h.OnDemoted(ctx, hooks.Demoted{Origin: who, Token: 1, Reason: hooks.Shutdown})
		},
		"after a term that ended before OnElected": func(h *Hook, who hooks.Origin) {
			h.OnCampaign(ctx, hooks.Campaign{Origin: who, Attempt: 1, Outcome: hooks.Granted})
			h.WithTerm(ctx, who.Election, 1)
		},
		"after a failure": func(h *Hook, who hooks.Origin) {
			h.OnError(ctx, hooks.Failure{Origin: who, Op: hooks.OpCampaign, Err: errors.New("refused")})
		},
		"after nothing": func(*Hook, hooks.Origin) {},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHook(t)
			h.OnError(ctx, hooks.Failure{Op: hooks.OpCall})
			for i := range 100 {
				who := hooks.Origin{Election: fmt.Sprint("shard-", i), CandidateID: "web-1"}
				ends(h, who)
				h.OnClosed(ctx, hooks.Closed{Origin: who})
				h.WithTerm(over, who.Election, 1)
			}
			if n := h.kept(); n != 0 {
				t.Errorf("%d entries are kept", n)
			}
		})
	}
}

func done(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
