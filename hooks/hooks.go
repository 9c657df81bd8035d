package hooks

import (
	"context"
	"fmt"
	"slices"
)

// Hook is any value that implements one or more of the interfaces below.
// elector.WithHooks rejects a value that implements none.
type Hook any

// ElectedHook is called when a term begins.
type ElectedHook interface {
	OnElected(ctx context.Context, e Elected)
}

// DemotedHook is called when a term has ended, before its lock is released.
type DemotedHook interface {
	OnDemoted(ctx context.Context, e Demoted)
}

// LeaderChangedHook is called when another session leads than before. To know the leader,
// each unsuccessful attempt reads pg_locks, and costs one more statement if the candidate
// waits in the server or is unhealthy. The elector does so only if such a hook is
// registered.
type LeaderChangedHook interface {
	OnLeaderChanged(ctx context.Context, e LeaderChanged)
}

// ErrorHook is called for every failure.
type ErrorHook interface {
	OnError(ctx context.Context, e Failure)
}

// HeartbeatHook is called after each answered heartbeat.
type HeartbeatHook interface {
	OnHeartbeat(ctx context.Context, e Heartbeat)
}

// CampaignHook is called after each attempt to be elected; see [Campaign].
type CampaignHook interface {
	OnCampaign(ctx context.Context, e Campaign)
}

// Check returns an error if h receives no event: it implements none of this package's
// interfaces, is a [Funcs] without a function, or a [Join] of nothing.
func Check(h Hook) error {
	if Wants[ElectedHook](h) || Wants[DemotedHook](h) || Wants[LeaderChangedHook](h) ||
		Wants[ErrorHook](h) || Wants[HeartbeatHook](h) || Wants[CampaignHook](h) {
		return nil
	}
	return fmt.Errorf("hooks: %T receives no event: it implements none of OnElected, OnDemoted, OnLeaderChanged, "+
		"OnError, OnHeartbeat and OnCampaign (is a method defined on the pointer, or every function nil?)", h)
}

// Wants reports whether h receives the event of the interface H. For [Funcs] and [Join]
// the functions and hooks inside decide.
func Wants[H any](h Hook) bool {
	switch h := h.(type) {
	case joined:
		return slices.ContainsFunc(h, Wants[H])
	case Funcs:
		return h.wants((*H)(nil))
	case *Funcs:
		return h != nil && h.wants((*H)(nil))
	default:
		_, ok := h.(H)
		return ok
	}
}
