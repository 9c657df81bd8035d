package results

import "strings"

// Command returns the command that makes such a run: with the flags that change the figures, and
// without -out, which names a directory of this machine.
func Command(args []string) string {
	var kept []string
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		switch {
		case name != "out" && strings.Contains(args[i], " "):
			kept = append(kept, "'"+args[i]+"'")
		case name != "out":
			kept = append(kept, args[i])
		case !joined:
			i++ // the directory
		}
	}
	switch flags := strings.Join(kept, " "); flags {
	case "", "-keep":
		return "make bench"
	case "-quick":
		return "make bench-quick"
	default:
		return "go run . " + flags
	}
}
