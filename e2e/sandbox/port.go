//go:build unix

package sandbox

import (
	"fmt"
	"net"
)

// Loopback is the only address that anything of this package listens on or connects to.
const Loopback = "127.0.0.1"

// PortAttempts is how many ports are tried: another process can take one between FreePort and its use.
const PortAttempts = 5

// FreePort returns a port that was free a moment ago.
func FreePort() (int, error) {
	l, err := net.Listen("tcp4", net.JoinHostPort(Loopback, "0"))
	if err != nil {
		return 0, fmt.Errorf("sandbox: look for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
