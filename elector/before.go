package elector

import (
	"time"

	"github.com/pgelector/pgelector/hooks"
)

// ledBefore is what the candidate, elected now, knows of who led before.
func (n *candidate) ledBefore(now time.Time) (e hooks.Elected) {
	last := n.last.Load()
	if last == nil {
		return e
	}
	e.Previous = last.candidateID
	until := n.past.led
	if last.at.After(until) {
		until = last.at
	}
	if ended := n.past.ended; e.Previous == n.candidateID && !last.at.After(ended.at) {
		if n.past.led.After(ended.at) {
			return hooks.Elected{} // somebody has led since, and no hook wants to know who
		}
		until, e.PreviousReason = ended.at, ended.reason
	}
	e.Leaderless = max(0, now.Sub(until))
	return e
}
