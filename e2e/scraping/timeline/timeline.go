// Package timeline defines the data that e2e/scraping records and e2e/pictures draws: the
// scraped metrics of the candidates of one election.
package timeline

import "time"

// Interval is the time between two scrapes.
const Interval = 250 * time.Millisecond

// Timeline is a series of scrapes.
type Timeline struct {
	Events     []Event     `json:"events"`
	Candidates []Candidate `json:"candidates"`
}

// Event is a fault.
type Event struct {
	Second float64 `json:"second"` // since the first scrape
	What   string  `json:"what"`
}

// Candidate has a value for each scrape.
type Candidate struct {
	ID     string    `json:"id"`
	Leader []int     `json:"leader"` // pgelector_leader
	Left   []float64 `json:"left"`   // pgelector_validity_remaining_seconds
}
