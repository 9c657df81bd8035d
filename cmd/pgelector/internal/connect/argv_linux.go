package connect

import (
	"os"
	"strings"
	"unsafe"
)

// HideArguments returns a copy of this program's arguments, and overwrites in
// the process table those that may hold a password: a --dsn and its value. On
// Linux os.Args are the very bytes that ps shows. Whoever looked between the
// start and this moment has seen them: the environment is the better place.
func HideArguments() []string {
	copied := make([]string, len(os.Args))
	for i, arg := range os.Args {
		copied[i] = strings.Clone(arg)
	}
	for i, arg := range copied {
		if arg == "--" {
			break // the command's own
		}
		value, inline := strings.CutPrefix(arg, "--dsn=")
		switch {
		case inline:
			overwrite(os.Args[i][len(arg)-len(value):])
		case arg == "--dsn" && i+1 < len(copied):
			overwrite(os.Args[i+1])
		}
	}
	return copied
}

func overwrite(arg string) {
	if len(arg) == 0 {
		return
	}
	text := unsafe.Slice(unsafe.StringData(arg), len(arg))
	for i := range text {
		text[i] = '*'
	}
}
