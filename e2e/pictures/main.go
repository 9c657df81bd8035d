// Command pictures draws the pictures of the documents, each for light and for
// dark pages: `make docs`. It needs nothing but Go. A second argument is the
// summary of a run of e2e/torture, to be drawn in the place of the committed one.
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
)

func main() {
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if len(os.Args) > 2 {
		var err error
		if tortureSummary, err = os.ReadFile(os.Args[2]); err != nil {
			log.Fatal(err)
		}
	}
	for name, picture := range pictures() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(picture), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// pictures are the pictures, by the names of their files.
func pictures() map[string]string {
	all := map[string]string{}
	for theme, colours := range themes {
		for name, draw := range map[string]func(*canvas){"states": states, "lease": leaseArithmetic, "metrics": metrics, "roster": roster, "torture": torture, "handover": handOver} {
			c := &canvas{palette: colours}
			draw(c)
			all[fmt.Sprintf("%s-%s.svg", name, theme)] = c.svg()
		}
	}
	return all
}
