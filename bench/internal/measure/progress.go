package measure

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress shows how far the run is, and how long it may still take.
type progress struct {
	out   io.Writer
	total float64 // seconds, as expected
	began time.Time

	mu    sync.Mutex
	spent float64 // of total
}

func newProgress(out io.Writer) *progress { return &progress{out: out, began: time.Now()} }

// done shows that something has been measured that was expected to take so many seconds.
func (p *progress) done(seconds float64, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent = min(p.spent+seconds, p.total)
	taken := time.Since(p.began)
	// At first the plan is believed, then more and more what was seen.
	share := p.spent / p.total
	seen := taken.Seconds() * (1 - share) / max(share, 0.01)
	left := time.Duration((share*seen + (1-share)*(p.total-p.spent)) * float64(time.Second))
	fmt.Fprintf(p.out, "%3.0f %%  %5s left  %s\n", 100*share, left.Round(time.Second), what)
}

// say shows something else.
func (p *progress) say(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.out, what)
}
