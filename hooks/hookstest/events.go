package hookstest

import "github.com/pgelector/pgelector/hooks"

// Event is any of the event values of package hooks.
type Event interface {
	hooks.Elected | hooks.Demoted | hooks.LeaderChanged | hooks.Failure | hooks.Heartbeat | hooks.Campaign
}

// Elected returns the terms that began, in order.
func (r *Recorder) Elected() []hooks.Elected { return only[hooks.Elected](r) }

// Demoted returns the terms that ended, in order.
func (r *Recorder) Demoted() []hooks.Demoted { return only[hooks.Demoted](r) }

// LeaderChanges returns the changes of leader, in order.
func (r *Recorder) LeaderChanges() []hooks.LeaderChanged { return only[hooks.LeaderChanged](r) }

// Failures returns the failures, in order.
func (r *Recorder) Failures() []hooks.Failure { return only[hooks.Failure](r) }

// Heartbeats returns the answered heartbeats, in order.
func (r *Recorder) Heartbeats() []hooks.Heartbeat { return only[hooks.Heartbeat](r) }

// Campaigns returns the attempts to be elected, in order.
func (r *Recorder) Campaigns() []hooks.Campaign { return only[hooks.Campaign](r) }

func only[E Event](r *Recorder) []E {
	var found []E
	for _, event := range r.Events() {
		if e, ok := event.(E); ok {
			found = append(found, e)
		}
	}
	return found
}
