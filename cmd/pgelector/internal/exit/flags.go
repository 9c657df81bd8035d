package exit

import (
	"errors"

	"github.com/pgelector/pgelector/elector"
)

// flags are those that set the elector's options. A test holds it complete.
var flags = map[string]string{
	"WithCandidateID":        "--candidate",
	"WithDeputyInterval":     "--deputy-interval",
	"WithDrain":              "--drain",
	"WithHeartbeatInterval":  "--heartbeat",
	"WithLease":              "--lease",
	"WithMaxAttempts":        "--max-attempts",
	"WithReadOnlyTimeout":    "--read-only-timeout",
	"WithRetryInterval":      "--retry",
	"WithScope":              "--scope",
	"WithSynchronousStandby": "--synchronous-standby",
	"WithTokenEpoch":         "--token-epoch",
}

// ByFlags turns an error about options into one of bad usage that names their flags. notes,
// by the options' names, say more of single ones. Other errors are returned as they are.
func ByFlags(err error, notes map[string]string) error {
	var bad *elector.OptionError
	if !errors.As(err, &bad) {
		return err
	}
	return Usagef("%s", bad.Name(func(o elector.OptionValue) string {
		text := flags[o.Name] + " " + o.Value
		if note := notes[o.Name]; note != "" {
			text += " (" + note + ")"
		}
		return text
	}))
}

// CheckElection returns an error of bad usage unless an election may have that name.
func CheckElection(name string) error {
	if elector.CheckElection(name) == nil {
		return nil
	}
	return Usagef("election name %q: want 1 to 1024 bytes without NUL", name)
}
