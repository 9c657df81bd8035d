//go:build !unix

package main

import "github.com/spf13/cobra"

// runCommands are none: run needs process groups and signals.
func (a *app) runCommands() []*cobra.Command { return nil }
