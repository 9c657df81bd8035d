package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand writes the man pages, for packagers.
func manCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "man [DIRECTORY]",
		Short:  "Write the man pages to a directory, or that of pgelector itself to standard output",
		Hidden: true,
		Args:   cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root.DisableAutoGenTag = true
			header := &doc.GenManHeader{Title: "PGELECTOR", Section: "1", Source: "pgelector", Manual: "pgelector"}
			if len(args) == 0 {
				return doc.GenMan(root, header, cmd.OutOrStdout())
			}
			return doc.GenManTree(root, header, args[0])
		},
	}
}
