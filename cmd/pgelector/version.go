package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this command and what it was built from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version())
			return err
		},
	}
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "pgelector, unknown version (built without module support)"
	}
	return describe(info)
}

func describe(info *debug.BuildInfo) string {
	text := fmt.Sprintf("pgelector %s (%s", info.Main.Version, info.GoVersion)
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			text += ", revision " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			text += ", modified"
		}
	}
	return text + ")"
}
