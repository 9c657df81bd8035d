// Package hooks reports what happens in an election. The elector itself logs nothing,
// counts nothing and traces nothing: register a Hook with elector.WithHooks.
//
//	e, err := elector.New(pool, "orders", elector.WithHooks(hooks.Funcs{
//		Elected: func(ctx context.Context, e hooks.Elected) { log.Print("leading with token ", e.Token) },
//		Demoted: func(ctx context.Context, e hooks.Demoted) { log.Print("demoted: ", e.Reason) },
//	}))
//
// A [Hook] is any value that implements one or more of the interfaces of this package:
// [ElectedHook], [DemotedHook], [LeaderChangedHook], [ErrorHook], [HeartbeatHook],
// [CampaignHook] and [ClosedHook]. [Funcs] makes a hook of functions, and [Join] makes one hook of many.
//
// # The contract
//
// A hook needs no locks, except for the case of OnError below:
//
//   - One elector never calls hooks concurrently, with one exception: OnError for work
//     that overruns its term ([OpWork]), or for a hook that does not return ([OpHook] with
//     Failure.Returned), is called at once, on a separate goroutine, even while another hook
//     runs. An OnElected that does not return, or waits for a hook that does not, may be that
//     work. Two electors that share a hook may call it at the same time.
//   - A hook other than OnElected is reported when it takes longer than the drain
//     (elector.WithDrain) or one heartbeat interval, whichever is longer, and a quarter more.
//     Until it returns, no other is called, and a term that ends keeps its lock. It receives
//     that report as the last, and not at all if it is its OnError that does not return. If
//     the candidate is told to stop meanwhile, that is reported once more.
//   - OnElected and OnDemoted strictly alternate, beginning with OnElected. A hook that
//     was added during a term (elector.Elector.AddHooks) receives neither for that term.
//   - OnElected gets the term's context, which is done when the term ends. It may do the
//     leader's work itself. Until it returns, no other hook is called (except OnError, as
//     above), and the lock is not released.
//   - If the term's session ends or its lease runs out before OnElected can be called,
//     neither OnElected nor OnDemoted is called for that term, and OnError says why
//     ([OpHeartbeat]). If the term is given up before, OnElected is called with a context
//     that is done, while the lock is still held.
//   - OnDemoted is called when the term's context is done, and all of the term's work and
//     its OnError have returned. Until OnDemoted returns, the lock is not released and the
//     next campaign does not begin.
//   - OnCampaign, OnLeaderChanged and OnError of a campaign are called between attempts.
//     A slow one delays only this candidate's next attempt.
//   - OnHeartbeat never delays a heartbeat. While a hook is busy, only the newest
//     heartbeat waits for it; older ones are dropped.
//   - OnClosed is the last call. An elector that is not closed may run again, and does not
//     make it.
//   - A panic in a hook is recovered and reported to OnError at once, and the other hooks
//     are still called. A panic in OnElected also ends the term. One in OnClosed is
//     reported only to hooks that are still to be closed. A panic in OnError, when that
//     reports a panic, is dropped.
//   - The context of every event but OnElected is never cancelled. It carries the values
//     of the context that Run, Start, Campaign or TryCampaign was given, trace and baggage among them,
//     but for [Closed], [OpHook], [OpHealth], [OpSetting], [OpCall], an [OpRequest] that the server
//     did not answer, and what a shared session reports. The goroutine has no pprof labels; in OnElected it
//     has those of the context.
//   - A hook must not wait for the elector that calls it: Stop, or Resign of the term,
//     would wait for the hook in turn.
//
// # Adapters
//
// Packages slog and hclog write logs. Packages prometheus and otel measure, and otel also
// traces. Package metrics serves any other monitoring system. Package hookstest is for
// tests. Package health, also a hook, serves health endpoints.
//
// New fields may be added to the event values: use field names in composite literals.
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

// ClosedHook is called when the elector is closed.
type ClosedHook interface {
	OnClosed(ctx context.Context, e Closed)
}

// Check returns an error if h receives no event: it implements none of this package's
// interfaces, is a [Funcs] without a function, or a [Join] of nothing.
func Check(h Hook) error {
	if Wants[ElectedHook](h) || Wants[DemotedHook](h) || Wants[LeaderChangedHook](h) ||
		Wants[ErrorHook](h) || Wants[HeartbeatHook](h) || Wants[CampaignHook](h) || Wants[ClosedHook](h) {
		return nil
	}
	return fmt.Errorf("hooks: %T receives no event: it implements none of OnElected, OnDemoted, OnLeaderChanged, "+
		"OnError, OnHeartbeat, OnCampaign and OnClosed (is a method defined on the pointer, or every function nil?)", h)
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

// Funcs is a Hook made of functions. Nil functions are skipped.
type Funcs struct {
	Elected       func(context.Context, Elected)
	Demoted       func(context.Context, Demoted)
	LeaderChanged func(context.Context, LeaderChanged)
	Error         func(context.Context, Failure)
	Heartbeat     func(context.Context, Heartbeat)
	Campaign      func(context.Context, Campaign)
	Closed        func(context.Context, Closed)
}

var (
	_ ElectedHook       = Funcs{}
	_ DemotedHook       = Funcs{}
	_ LeaderChangedHook = Funcs{}
	_ ErrorHook         = Funcs{}
	_ HeartbeatHook     = Funcs{}
	_ CampaignHook      = Funcs{}
	_ ClosedHook        = Funcs{}
)

// OnElected calls f.Elected.
func (f Funcs) OnElected(ctx context.Context, e Elected) { call(f.Elected, ctx, e) }

// OnDemoted calls f.Demoted.
func (f Funcs) OnDemoted(ctx context.Context, e Demoted) { call(f.Demoted, ctx, e) }

// OnLeaderChanged calls f.LeaderChanged.
func (f Funcs) OnLeaderChanged(ctx context.Context, e LeaderChanged) { call(f.LeaderChanged, ctx, e) }

// OnError calls f.Error.
func (f Funcs) OnError(ctx context.Context, e Failure) { call(f.Error, ctx, e) }

// OnHeartbeat calls f.Heartbeat.
func (f Funcs) OnHeartbeat(ctx context.Context, e Heartbeat) { call(f.Heartbeat, ctx, e) }

// OnCampaign calls f.Campaign.
func (f Funcs) OnCampaign(ctx context.Context, e Campaign) { call(f.Campaign, ctx, e) }

// OnClosed calls f.Closed.
func (f Funcs) OnClosed(ctx context.Context, e Closed) { call(f.Closed, ctx, e) }

func call[E any](fn func(context.Context, E), ctx context.Context, e E) {
	if fn != nil {
		fn(ctx, e)
	}
}

// wants reports whether the function for the interface that probe points to is set.
func (f Funcs) wants(probe any) bool {
	switch probe.(type) {
	case *ElectedHook:
		return f.Elected != nil
	case *DemotedHook:
		return f.Demoted != nil
	case *LeaderChangedHook:
		return f.LeaderChanged != nil
	case *ErrorHook:
		return f.Error != nil
	case *HeartbeatHook:
		return f.Heartbeat != nil
	case *CampaignHook:
		return f.Campaign != nil
	case *ClosedHook:
		return f.Closed != nil
	}
	return false
}

// All is a hook that receives every event.
type All interface {
	ElectedHook
	DemotedHook
	LeaderChangedHook
	ErrorHook
	HeartbeatHook
	CampaignHook
	ClosedHook
}

// Join returns a hook that passes each event to all hooks, in the order given. If one
// panics, the others still receive the event. Nil hooks are left out.
func Join(all ...Hook) All {
	var j joined
	for _, h := range all {
		if h != nil {
			j = append(j, h)
		}
	}
	return j
}

type joined []Hook

// Unwrap is for the elector, which guards each hook by itself.
func (j joined) Unwrap() []Hook { return j }

func (j joined) OnElected(ctx context.Context, e Elected) {
	each(j, func(h ElectedHook) { h.OnElected(ctx, e) })
}

func (j joined) OnDemoted(ctx context.Context, e Demoted) {
	each(j, func(h DemotedHook) { h.OnDemoted(ctx, e) })
}

func (j joined) OnLeaderChanged(ctx context.Context, e LeaderChanged) {
	each(j, func(h LeaderChangedHook) { h.OnLeaderChanged(ctx, e) })
}

func (j joined) OnError(ctx context.Context, e Failure) {
	each(j, func(h ErrorHook) { h.OnError(ctx, e) })
}

func (j joined) OnHeartbeat(ctx context.Context, e Heartbeat) {
	each(j, func(h HeartbeatHook) { h.OnHeartbeat(ctx, e) })
}

func (j joined) OnCampaign(ctx context.Context, e Campaign) {
	each(j, func(h CampaignHook) { h.OnCampaign(ctx, e) })
}

func (j joined) OnClosed(ctx context.Context, e Closed) {
	each(j, func(h ClosedHook) { h.OnClosed(ctx, e) })
}

// each calls the hooks that implement H, in order. The deferred call of the rest lets a
// panic pass on after all hooks were called.
func each[H any](all joined, call func(H)) {
	if len(all) == 0 {
		return
	}
	defer each(all[1:], call)
	if h, ok := all[0].(H); ok {
		call(h)
	}
}
