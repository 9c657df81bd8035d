package hooks

import "context"

// All is a hook that receives every event.
type All interface {
	ElectedHook
	DemotedHook
	LeaderChangedHook
	ErrorHook
	HeartbeatHook
	CampaignHook
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
