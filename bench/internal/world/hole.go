package world

import (
	"net"
	"sync"
)

// Hole is a TCP proxy that can swallow everything, for etcd: pgcluster's proxies lead to PostgreSQL only.
type Hole struct {
	listener net.Listener
	upstream string

	mu      sync.Mutex
	isBlack bool
	conns   []net.Conn
}

// NewHole starts a proxy in front of an address. It lets everything pass.
func NewHole(upstream string) (*Hole, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := &Hole{listener: listener, upstream: upstream}
	go h.serve()
	return h, nil
}

// Addr returns the host and port that it listens on.
func (h *Hole) Addr() string { return h.listener.Addr().String() }

// BlackHole stops all bytes, both ways; connections stay open.
func (h *Hole) BlackHole() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.isBlack = true
}

// Close ends everything.
func (h *Hole) Close() error {
	err := h.listener.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, conn := range h.conns {
		_ = conn.Close()
	}
	return err
}

func (h *Hole) serve() {
	for {
		client, err := h.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp4", h.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		h.mu.Lock()
		h.conns = append(h.conns, client, server)
		h.mu.Unlock()
		go h.pass(server, client)
		go h.pass(client, server)
	}
}

// pass copies until an end closes, and never again once the hole is black.
func (h *Hole) pass(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if h.black() {
			return
		}
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			_ = to.Close()
			return
		}
	}
}

func (h *Hole) black() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isBlack
}
