package exit

import "github.com/pgelector/pgelector/internal/option"

// flags are those that set the elector's options. A test holds it complete.
var flags = map[string]string{
	"WithCandidateID":        "--candidate",
	"WithDrain":              "--drain",
	"WithHeartbeatInterval":  "--heartbeat",
	"WithLease":              "--lease",
	"WithMaxAttempts":        "--max-attempts",
	"WithReadOnlyTimeout":    "--read-only-timeout",
	"WithRetryInterval":      "--retry",
	"WithSynchronousStandby": "--synchronous-standby",
	"WithTokenEpoch":         "--token-epoch",
}

// ByFlags is the error of bad usage for options that cannot be used, by the names of
// the flags that set them; notes, by the options' names, say more of single ones.
// Other errors are returned as they are.
func ByFlags(err error, notes map[string]string) error {
	bad, ok := option.In(err)
	if !ok {
		return err
	}
	return Usagef("%s", bad.Name(func(v option.Value) string {
		text := flags[v.Name] + " " + v.Text
		if note := notes[v.Name]; note != "" {
			text += " (" + note + ")"
		}
		return text
	}))
}

// CheckElection is an error of bad usage unless an election may have that name.
func CheckElection(name string) error { return With(Usage, option.CheckElection(name)) }
