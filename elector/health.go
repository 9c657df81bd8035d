package elector

import (
	"cmp"
	"math"
	"time"
)

// HealthPolicy says how WithHealth judges a candidate. A zero field means its default.
type HealthPolicy struct {
	// Minimum is the lowest good score: more than 0, at most 1. Default 0.5.
	Minimum float64

	// Interval is the time between the starts of two checks, and the timeout of each:
	// 10 ms to 1 h. Default 1 s.
	Interval time.Duration

	// StepDownAfter is how many bad checks in a row make a healthy candidate unhealthy:
	// 1 to 1000. Default 3.
	StepDownAfter int

	// CampaignAfter is how many good checks in a row make an unhealthy candidate healthy:
	// 1 to 1000. Default 3.
	CampaignAfter int

	// StayWhenUnhealthy lets a leader go on leading when it becomes unhealthy: the policy then
	// decides only about campaigns.
	StayWhenUnhealthy bool
}

// A HealthReport is what a check returns, or a program reports of itself (Elector.ReportHealth).
type HealthReport struct {
	Score     float64           // from 0 (unfit) to 1 (fit): values below 0 and NaN count as 0, values above 1 as 1
	Unhealthy bool              // unfit, whatever the score
	Why       string            // the reason, as people will read it
	Metadata  map[string]string // what it is about, such as the load; not to be changed afterwards
}

// Health is what is known of a candidate's health. The score, the time and the reason are those of its last
// check or of its last report, whichever is worse.
type Health struct {
	Score    float64 // from 0 to 1; 0 if the check returned none
	Healthy  bool    // whether the candidate may campaign and lead; the policy decides, not the last check alone
	Minimum  float64 // the lowest good score
	Why      string  // as reported; or the text of Err
	Metadata map[string]string
	At       time.Time // of the check or the report; zero if there was none
	Err      error     // why there is no score: the check panicked or timed out
	Current  bool      // whether the candidate campaigns or leads, so that it is checked

	unfit bool // whatever the score
}

const (
	defaultMinimum  = 0.5
	defaultInterval = time.Second
	defaultInARow   = 3

	minInterval = 10 * time.Millisecond
	maxInterval = time.Hour
	maxInARow   = 1000
)

func healthOf(r HealthReport) Health {
	h := Health{Score: clampScore(r.Score), Why: r.Why, Metadata: r.Metadata, At: time.Now()}
	if h.unfit = r.Unhealthy; h.unfit {
		h.Why = cmp.Or(h.Why, "it reports itself unhealthy")
	}
	return h
}

func clampScore(score float64) float64 {
	if math.IsNaN(score) {
		return 0
	}
	return min(max(score, 0), 1)
}
