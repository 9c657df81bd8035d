package connect

import (
	"os"
	"strings"
	"unsafe"
)

// HideArguments returns a copy of this program's arguments, and overwrites the value of
// --dsn, which may contain a password, in the process table. On Linux os.Args are the bytes
// that ps shows. Until then everybody can read them: the environment is the better place.
func HideArguments() []string {
	copied := make([]string, len(os.Args))
	for i, arg := range os.Args {
		copied[i] = strings.Clone(arg)
	}
	for i, arg := range copied {
		if arg == "--" {
			break // arguments of the command
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
