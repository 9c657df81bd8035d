//go:build !unix

package main

import "github.com/spf13/cobra"

// demoCommands are none: the demo freezes and kills processes by signals.
func demoCommands() []*cobra.Command { return nil }
