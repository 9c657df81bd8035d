// Command pgelector shows and inspects leader elections on PostgreSQL.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{
		Use:           "pgelector",
		Short:         "Leader election on PostgreSQL session advisory locks",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(versionCommand())
	root.AddCommand(demoCommands()...)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "pgelector:", err)
		var code exitCode
		if errors.As(err, &code) {
			os.Exit(code.code)
		}
		os.Exit(1)
	}
}

// exitCode is an error that wants another exit code than 1.
type exitCode struct {
	error
	code int
}

func (e exitCode) Unwrap() error { return e.error }
