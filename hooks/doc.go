// Package hooks is how an election tells the world what happened. The elector
// itself logs nothing, counts nothing and traces nothing: whoever wants to know
// registers a Hook with elector.WithHooks.
//
// # What a hook is
//
// A [Hook] is any value that implements one or more of the interfaces of this
// package: [ElectedHook], [DemotedHook], [LeaderChangedHook], [ErrorHook],
// [HeartbeatHook] and [CampaignHook]. Implement the ones you care about, use
// [Funcs] for plain functions, and [Join] to make one hook of many.
//
// # The contract
//
// Who calls, and when, so that a hook needs no locks of its own but for one case:
//
//   - For one elector, hooks are never called concurrently, with one exception:
//     OnError for work that overruns its term ([OpWork] with elector.ErrOverrun) is
//     called at once, on a goroutine of its own, also while another hook runs, because
//     an OnElected that does not return may be that work. Two electors that share a
//     hook may call it at the same time.
//   - OnElected and OnDemoted strictly alternate, beginning with OnElected.
//   - OnElected gets the term's context, which is done when the term ends, and
//     runs while the term goes on: it may do the leader's work itself. No other
//     hook is called (but for OnError, as above), and the lock is not released, until
//     it returns.
//   - OnElected is not called if the term's session has ended, or its lease has run out,
//     before it could be; then OnDemoted is not called for that term either, and OnError
//     says why ([OpHeartbeat]). If the term was given up before, OnElected is called all
//     the same, with a context that is done, while the lock is still held.
//   - OnDemoted is called once the term's context is done and all of the term's
//     work, and OnError for it, have returned. The lock is not released, nor the next
//     campaign begun, until it returns.
//   - OnCampaign, OnLeaderChanged and OnError of a campaign are called between
//     attempts: a slow one delays this candidate's next attempt, and nothing else.
//   - OnHeartbeat never delays a heartbeat. While a hook is busy only the newest
//     heartbeat waits for it; the older ones are dropped.
//   - A panic in a hook is recovered and reported to OnError; the other hooks
//     are still called. A panic in OnElected ends the term besides. A panic in
//     OnError is recovered and dropped.
//   - The context of every event but OnElected carries the values of the context
//     that the campaign was given, and is never cancelled.
//   - A hook must not wait for the elector that calls it: Stop, or Resign of the
//     term it is told about, would wait for the hook in turn.
//
// # Adapters
//
// Each is a package of its own: slog and hclog write logs, prometheus and otel
// measure (and otel traces), metrics serves any other system that counts, and
// hookstest is for tests. Package health, a hook too, answers probes.
//
// New fields may be added to the event values; compose them with field names.
package hooks
