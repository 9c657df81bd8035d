package unruly

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// wire returns the connection as the habit has it.
func (h Habit) wire(conn net.Conn) net.Conn {
	switch h {
	case Websocket:
		w := &websocket{Conn: conn}
		w.timer = time.AfterFunc(time.Hour, w.expire)
		w.timer.Stop()
		return w
	case Closes:
		return closing{conn}
	case Ignores:
		return timeless{conn, nil}
	case Refuses:
		return timeless{conn, errors.New("unruly: deadlines are not supported")}
	case Overwrites:
		return &hasty{conn}
	}
	return conn
}

// A websocket is like the net.Conn that libraries make of a websocket: the protocol cannot give up half
// a message, so the end of a Read is the end of the connection.
type websocket struct {
	net.Conn
	timer *time.Timer

	mu      sync.Mutex
	reading bool
	expired bool // while nobody read
}

func (w *websocket) SetReadDeadline(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	if w.expired = false; !at.IsZero() {
		w.timer.Reset(max(time.Until(at), 1))
	}
	return nil
}

func (w *websocket) SetDeadline(at time.Time) error {
	return errors.Join(w.SetReadDeadline(at), w.SetWriteDeadline(at))
}

func (w *websocket) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.expired = !w.reading; w.reading {
		_ = w.Conn.Close()
	}
}

func (w *websocket) Read(b []byte) (int, error) {
	w.mu.Lock()
	if w.expired {
		w.mu.Unlock()
		return 0, fmt.Errorf("unruly: read: %w", context.DeadlineExceeded)
	}
	w.reading = true
	w.mu.Unlock()
	n, err := w.Conn.Read(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reading = false; errors.Is(err, net.ErrClosed) {
		err = errors.New("unruly: failed to get reader: context canceled")
	}
	return n, err
}

func (w *websocket) Close() error {
	w.timer.Stop()
	return w.Conn.Close()
}

// closing closes itself when a read deadline fires.
type closing struct{ net.Conn }

func (c closing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = c.Conn.Close()
	}
	return n, err
}

// timeless has no deadlines.
type timeless struct {
	net.Conn
	says error
}

func (t timeless) SetDeadline(time.Time) error      { return t.says }
func (t timeless) SetReadDeadline(time.Time) error  { return t.says }
func (t timeless) SetWriteDeadline(time.Time) error { return t.says }

// readTime bounds each Read of hasty. No test waits for it.
const readTime = 10 * time.Minute

// hasty bounds each Read by a deadline, as is usual. What another goroutine sets just before that is lost;
// the pause makes sure that it is.
type hasty struct{ net.Conn }

func (h *hasty) Read(b []byte) (int, error) {
	time.Sleep(200 * time.Microsecond)
	if err := h.SetReadDeadline(time.Now().Add(readTime)); err != nil {
		return 0, err
	}
	return h.Conn.Read(b)
}
