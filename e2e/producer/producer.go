// Package producer is the main function of the commands that make the documents' pictures
// from real servers and programs.
package producer

import (
	"context"
	"fmt"
	"os"
	"os/signal"
)

// Main calls produce with the command's only argument and ends the process: with status 64 if
// the argument is missing, with 1 after an error. argument names the kind of argument. An
// interrupt ends the context, so that produce can clean up.
func Main(command, argument string, produce func(ctx context.Context, argument string) error) {
	if len(os.Args) != 2 {
		fmt.Fprintf(os.Stderr, "usage: %s %s\n", command, argument)
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := produce(ctx, os.Args[1])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", command, err)
		os.Exit(1)
	}
}
