package doctor

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// shown are the checks whose texts name nothing of the user's. The texts of all others are left out,
// and so are all errors.
var shown = []string{"version", "recovery", "pooler", "lock table", "connecting", "connections", "need", "round trip", "clocks", "host", "durability", "Patroni", "protocol", "loss"}

// writeReport writes the file that a user may show to others.
func (x *Examination) writeReport(failure error) error {
	if x.Report == "" {
		return nil
	}
	var text strings.Builder
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	fmt.Fprintf(&text, "pgelector %s, %s %s/%s, driver %s\n\n%s\n\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH, x.Target.Driver, x.verdict(failure))
	if len(x.can) > 0 {
		x.writeCapabilities(&text, false)
	}
	for _, f := range x.found {
		said := f.Text
		if !slices.Contains(shown, f.Check) {
			said = "(left out: it may name a host, a role or a program)"
		}
		line(&text, fmt.Sprintf("%-4s  %-15s  ", f.Level, f.Check), said)
	}
	return os.WriteFile(x.Report, []byte(text.String()), 0o600)
}
