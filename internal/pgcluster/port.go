//go:build unix

package pgcluster

import (
	"fmt"
	"net"
)

// loopback is the only address that anything of this package listens on or connects to.
const loopback = "127.0.0.1"

// portAttempts is how many ports are tried: another process can take one between freePort and its use.
const portAttempts = 5

// freePort returns a port that was free a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp4", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return 0, fmt.Errorf("pgcluster: look for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
