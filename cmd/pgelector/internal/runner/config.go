//go:build unix

package runner

import (
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/elector"
)

// Config is what to run, and how. Fit fills in what is zero.
type Config struct {
	Target    *connect.Target
	Election  string
	Candidate string // "" is the library's choice
	Command   []string
	Guard     []string // the arguments that make this program the guard of a command that follows
	Log       hclog.Logger

	Lease           time.Duration
	Heartbeat       time.Duration // 0 is the library's choice
	Drain           time.Duration // 0 is a fifth of the lease, or what the grace needs
	Grace           time.Duration // NoGrace is what fits into the drain
	Retry           time.Duration
	MaxAttempts     int
	ReadOnlyTimeout time.Duration
	TokenEpoch      int
	Wait            bool          // park in the server while another leads
	Watch           bool          // learn at once when the server ends the session
	Synchronous     time.Duration // the longest lease of all candidates, with synchronous standbys; 0 without

	Restart    bool
	BackoffMin time.Duration
	BackoffMax time.Duration

	IfFree   bool
	FreeWait time.Duration
	BusyCode int
	Hold     time.Duration

	HTTP string // "" is none

	notes map[string]string // what to say of options that cannot be used
}

// NoGrace says that no grace was chosen.
const NoGrace = -1

// killTime is what KILL, and the reaping of what it ended, gets of the drain.
// Of a drain that is shorter than two of it, half is left for the grace.
const killTime = 200 * time.Millisecond

const drainShare = 5 // the library's default: drain = lease/5

// Fit completes the configuration, and returns an error of bad usage if a
// command could not be ended within the drain.
func (c *Config) Fit() error {
	switch {
	case c.Grace < NoGrace:
		return exit.Usagef("--grace %v: want a grace of at least 0", c.Grace)
	case c.BackoffMin <= 0 || c.BackoffMax < c.BackoffMin:
		return exit.Usagef("--backoff %v, --backoff-max %v: want 0 < backoff <= backoff-max", c.BackoffMin, c.BackoffMax)
	case c.IfFree && c.Restart:
		return exit.Usagef("--if-free with --restart: a command that is restarted does not leave when another leads; use one of them")
	case c.IfFree && c.Synchronous != 0:
		return exit.Usagef("--if-free with --synchronous-standby: a process that has just started may not lead before it has known the primary for %v; use one of them", c.Synchronous)
	case !c.IfFree && (c.FreeWait != 0 || c.BusyCode != 0):
		return exit.Usagef("--wait and --if-free-exit-code say what to do with --if-free, which is not given")
	case c.FreeWait < 0 || c.Hold < 0 || c.MaxAttempts < 0:
		return exit.Usagef("--wait, --hold and --max-attempts must not be negative")
	case c.BusyCode < 0 || c.BusyCode > 255:
		return exit.Usagef("--if-free-exit-code %d: want 0 to 255", c.BusyCode)
	}
	if _, _, err := net.SplitHostPort(c.HTTP); c.HTTP != "" && err != nil {
		return exit.Usagef("--http %q: want an address with a port, such as :8080 or 127.0.0.1:8080", c.HTTP)
	}
	if c.Drain == 0 {
		c.Drain = c.Lease / drainShare
		if needed := c.Grace + killTime; c.Grace > 0 && needed > c.Drain {
			c.Drain = needed
			c.notes = map[string]string{"WithDrain": fmt.Sprintf("which --grace %v needs", c.Grace)}
		}
	}
	reserve := min(killTime, c.Drain/2)
	if c.Grace == NoGrace {
		c.Grace = c.Drain - reserve
	}
	if c.Grace+reserve > c.Drain {
		return exit.Usagef("--grace %v does not fit into --drain %v: want grace + %v <= drain, so that what ignores TERM is killed before another may lead",
			c.Grace, c.Drain, reserve)
	}
	return nil
}

// options are those of the candidate.
func (c *Config) options() []elector.Option {
	all := []elector.Option{elector.WithLease(c.Lease), elector.WithDrain(c.Drain),
		elector.WithRetryInterval(c.Retry), elector.WithMaxAttempts(c.MaxAttempts), elector.WithReadOnlyTimeout(c.ReadOnlyTimeout),
		elector.WithTokenEpoch(c.TokenEpoch)}
	if c.Heartbeat != 0 {
		all = append(all, elector.WithHeartbeatInterval(c.Heartbeat))
	}
	if c.Candidate != "" {
		all = append(all, elector.WithCandidateID(c.Candidate))
	}
	if c.Wait {
		all = append(all, elector.WithStandby(elector.Wait))
	}
	if c.Watch {
		all = append(all, elector.WithWatch())
	}
	if c.Synchronous != 0 {
		all = append(all, elector.WithSynchronousStandby(c.Synchronous))
	}
	return all
}
