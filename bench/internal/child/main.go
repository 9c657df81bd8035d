package child

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/pgelector/pgelector/bench/internal/systems"
)

// Role is the argument that makes the program a candidate.
const Role = "candidate"

// The orders.
const (
	orderResign = "resign"
	orderArm    = "arm"
)

// Main is a candidate's life.
func Main(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	if !lines.Scan() {
		return lines.Err()
	}
	var env systems.Env
	if err := json.Unmarshal(lines.Bytes(), &env); err != nil {
		return err
	}
	system, ok := systems.Find(env.System)
	if !ok {
		return fmt.Errorf("no system is named %q", env.System)
	}
	resign := make(chan struct{})
	env.Resign = resign
	reporter := systems.NewReporter(out, env.Elections)
	for i := range max(env.Candidates, 1) {
		env := env
		if i > 0 {
			env.ID = fmt.Sprintf("%s.%d", env.ID, i)
		}
		go func() {
			if err := system.Run(context.Background(), env, reporter); err != nil {
				reporter.Fail(err)
			}
		}()
	}
	obey(lines, resign, reporter)
	os.Exit(0) // whatever still goes on: connections end with the process
	return nil
}

// obey carries out orders until there are no more.
func obey(lines *bufio.Scanner, resign chan struct{}, reporter *systems.Reporter) {
	for lines.Scan() {
		switch lines.Text() {
		case orderResign:
			close(resign)
		case orderArm:
			reporter.Arm()
		}
	}
}
