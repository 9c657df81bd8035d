package hooks

import "context"

// Funcs is a Hook made of functions. Nil functions are skipped.
type Funcs struct {
	Elected       func(context.Context, Elected)
	Demoted       func(context.Context, Demoted)
	LeaderChanged func(context.Context, LeaderChanged)
	Error         func(context.Context, Failure)
	Heartbeat     func(context.Context, Heartbeat)
	Campaign      func(context.Context, Campaign)
}

var (
	_ ElectedHook       = Funcs{}
	_ DemotedHook       = Funcs{}
	_ LeaderChangedHook = Funcs{}
	_ ErrorHook         = Funcs{}
	_ HeartbeatHook     = Funcs{}
	_ CampaignHook      = Funcs{}
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
	}
	return false
}
