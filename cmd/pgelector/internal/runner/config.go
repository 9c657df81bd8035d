//go:build unix

package runner

import (
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/pgelector/pgelector/cmd/pgelector/internal/connect"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/exit"
	"github.com/pgelector/pgelector/cmd/pgelector/internal/supervise"
	"github.com/pgelector/pgelector/elector"
)

// DefaultValidate is the default of Config.Validate.
const DefaultValidate = time.Second

// Config says what to run. Fit fills in defaults.
type Config struct {
	Target    *connect.Target
	Election  string
	Candidate string   // "" means the library's default
	Command   []string // empty: lead without one
	Guard     []string // arguments that make this program a guard: see supervise.Options

	// Log must wait for no reader: lines are written before a command or a term ends.
	Log hclog.Logger

	Lease           time.Duration
	Heartbeat       time.Duration // 0 means the library's default
	Validate        time.Duration // 0 means never
	Drain           time.Duration // 0 means a fifth of the lease, or what the grace needs
	Grace           time.Duration // NoGrace means what fits into the drain
	Retry           time.Duration // 0 means the library's default
	MaxAttempts     int
	ReadOnlyTimeout time.Duration
	TokenEpoch      int
	Scope           elector.Scope
	Takeover        elector.Takeover // if TakeoverChosen
	TakeoverChosen  bool
	DeputyInterval  time.Duration // 0 means the library's default
	Priority        int32         // if PriorityChosen
	PriorityChosen  bool
	PreemptDelay    time.Duration // 0 means the library's default
	LockDelay       time.Duration // the longest lease of all candidates; 0: off
	Synchronous     time.Duration // the longest lease of all candidates, with synchronous standbys; else 0

	Group  string // of shards; then Election is empty
	Shards int
	Moves  int
	Most   int // 0: no bound
	Sticky time.Duration

	Once            bool          // end when the command ends, or the term is lost
	RestartDelay    time.Duration // the first wait after the command ended
	RestartDelayMax time.Duration // the longest

	IfFree   bool
	FreeWait time.Duration
	BusyCode int
	Hold     time.Duration

	HealthCommand  string // "" means none
	HealthInterval time.Duration

	HTTP   string // "" means none
	Roster string // the schema of the roster that shows this candidate; "" means none

	reaper func() *supervise.Reaper // set before options are; called later

	notes map[string]string // explanations for invalid options
}

// Defaults returns a config for Fit, with the defaults of what must not be zero.
func Defaults() Config {
	return Config{Grace: NoGrace, HealthInterval: 5 * time.Second, RestartDelay: time.Second, RestartDelayMax: time.Minute}
}

// hasCommand reports whether a command is run. Without one, the candidate leads until it is
// stopped, and serves that it does.
func (c *Config) hasCommand() bool { return len(c.Command) > 0 }

// NoGrace means that the user chose no grace.
const NoGrace = -1

// killTime is the part of the drain for KILL and reaping. At most half of a short drain.
const killTime = 200 * time.Millisecond

const maxSticky = 24 * time.Hour // shard.WithSticky's

const drainShare = 5 // the library's default: drain = lease/5

// Fit fills in defaults. It returns a usage error if a value is out of range, or if the command
// could not be ended within the drain.
func (c *Config) Fit() error {
	if c.Group != "" {
		if err := exit.CheckShards(c.Group, c.Shards); err != nil {
			return err
		}
	}
	switch {
	case c.Grace < NoGrace:
		return exit.Usagef("--grace %v: want a grace of at least 0", c.Grace)
	case c.RestartDelay <= 0 || c.RestartDelayMax < c.RestartDelay:
		return exit.Usagef("--restart-delay %v, --restart-delay-max %v: want 0 < restart-delay <= restart-delay-max", c.RestartDelay, c.RestartDelayMax)
	case c.Group != "" && (c.Moves < 1 || c.Most < 0 || c.Sticky < 0 || c.Sticky > maxSticky):
		return exit.Usagef("--moves %d, --most %d, --sticky %v: want at least 1 move, a bound of at least 0, and 0 to %v", c.Moves, c.Most, c.Sticky, maxSticky)
	case c.IfFree && c.Synchronous != 0:
		return exit.Usagef("--if-free and --synchronous-standby exclude each other: a new process may lead only after it has known the primary for %v", c.Synchronous)
	case c.FreeWait < 0 || c.Hold < 0 || c.MaxAttempts < 0:
		return exit.Usagef("--wait, --hold and --max-attempts must not be negative")
	case c.HealthInterval < 100*time.Millisecond || c.HealthInterval > time.Hour:
		return exit.Usagef("--health-interval %v: want 100ms to 1h", c.HealthInterval)
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
			c.notes = map[string]string{"WithDrain": fmt.Sprintf("needed by --grace %v", c.Grace)}
		}
	}
	reserve := min(killTime, c.Drain/2)
	if c.Grace == NoGrace {
		c.Grace = c.Drain - reserve
	}
	if c.Grace+reserve > c.Drain {
		return exit.Usagef("--grace %v does not fit into --drain %v: want grace + %v <= drain, so that a process that ignores TERM is killed before another may lead",
			c.Grace, c.Drain, reserve)
	}
	return nil
}

// options returns the elector's options.
func (c *Config) options() (all []elector.Option) {
	for _, option := range c.sessionOptions() {
		all = append(all, option)
	}
	all = append(all, elector.WithScope(c.Scope))
	if c.TakeoverChosen {
		all = append(all, elector.WithTakeover(c.Takeover))
	}
	if c.DeputyInterval != 0 {
		all = append(all, elector.WithDeputyInterval(c.DeputyInterval))
	}
	if c.Synchronous != 0 {
		all = append(all, elector.WithSynchronousStandby(c.Synchronous))
	}
	return all
}

// sessionOptions returns those that go for shards, too.
func (c *Config) sessionOptions() []elector.SessionOption {
	all := []elector.SessionOption{elector.WithLease(c.Lease), elector.WithDrain(c.Drain),
		elector.WithMaxAttempts(c.MaxAttempts), elector.WithReadOnlyTimeout(c.ReadOnlyTimeout), elector.WithTokenEpoch(c.TokenEpoch)}
	if c.Validate != DefaultValidate { // else it is shorter with a short heartbeat interval
		all = append(all, elector.WithValidateInterval(c.Validate))
	}
	if c.Heartbeat != 0 {
		all = append(all, elector.WithHeartbeatInterval(c.Heartbeat))
	}
	if c.Candidate != "" {
		all = append(all, elector.WithCandidateID(c.Candidate))
	}
	if c.HealthCommand != "" {
		all = append(all, c.health(c.reaper))
	}
	if c.PriorityChosen {
		all = append(all, elector.WithPriority(c.Priority))
	}
	if c.PreemptDelay != 0 {
		all = append(all, elector.WithPreemptDelay(c.PreemptDelay))
	}
	if c.LockDelay != 0 {
		all = append(all, elector.WithLockDelay(c.LockDelay))
	}
	if c.Retry != 0 {
		all = append(all, elector.WithRetryInterval(c.Retry))
	}
	return all
}
