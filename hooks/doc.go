// Package hooks reports what happens in an election. The elector itself logs nothing,
// counts nothing and traces nothing: register a Hook with elector.WithHooks.
//
//	e, err := elector.New(pool, "orders", elector.WithHooks(hooks.Funcs{
//		Elected: func(ctx context.Context, e hooks.Elected) { log.Print("leading with token ", e.Token) },
//		Demoted: func(ctx context.Context, e hooks.Demoted) { log.Print("demoted: ", e.Reason) },
//	}))
//
// A [Hook] is any value that implements one or more of the interfaces of this package:
// [ElectedHook], [DemotedHook], [LeaderChangedHook], [ErrorHook], [HeartbeatHook] and
// [CampaignHook]. [Funcs] makes a hook of functions, and [Join] makes one hook of many.
//
// # The contract
//
// A hook needs no locks, except for the case of OnError below:
//
//   - One elector never calls hooks concurrently, with one exception: OnError for work
//     that overruns its term ([OpWork] with elector.ErrOverrun) is called at once, on a
//     separate goroutine, even while another hook runs. An OnElected that does not
//     return may be that work. Two electors that share a hook may call it at the same
//     time.
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
//   - A panic in a hook is recovered and reported to OnError, and the other hooks are
//     still called. A panic in OnElected also ends the term. A panic in OnError is
//     recovered and dropped.
//   - The context of every event but OnElected carries the values of the campaign's
//     context, and is never cancelled.
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
