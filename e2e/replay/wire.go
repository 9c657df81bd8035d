//go:build unix

package replay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// A Wire reads both streams of one connection, and writes on the tape when each statement was sent and answered.
type Wire struct {
	tape *Tape
	who  string
	conn int

	mu         sync.Mutex
	client     []byte // read, and not a whole message yet
	server     []byte
	started    bool // the startup message was read
	ignored    bool // a cancel request, or a connection that the tape cannot follow
	over       bool
	statements map[string]string // prepared, by name
	portals    map[string]string
	executed   string   // since the last Sync
	pending    []string // sent, and not answered; empty for what the tape does not follow
	answer     Event
}

func (w *Wire) add(e Event) {
	e.Who, e.Conn = w.who, w.conn
	w.tape.Add(e)
}

// The first messages of a connection have no type, but a code.
const (
	protocol3     = 3 << 16
	cancelRequest = 80877102
)

// Client reads what the client sends.
func (w *Wire) Client(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.client = append(w.client, b...)
	for !w.ignored && len(w.client) >= 8 {
		if !w.started {
			size := binary.BigEndian.Uint32(w.client)
			switch code := binary.BigEndian.Uint32(w.client[4:]); {
			case code == cancelRequest:
				w.ignored = true
				return
			case code < protocol3 || code >= 4<<16 || size > 10_000: // TLS; or the middle of a stream
				w.ignored = true
				w.add(Event{Kind: Refused})
				return
			case len(w.client) < int(size):
				return
			}
			w.client, w.started = w.client[size:], true
			continue
		}
		kind, body, rest := message(w.client)
		if body == nil {
			return
		}
		w.client = rest
		w.clientMessage(kind, body)
	}
	w.clientMessages()
}

// clientMessages reads the short messages that are left, such as Sync.
func (w *Wire) clientMessages() {
	for w.started && !w.ignored {
		kind, body, rest := message(w.client)
		if body == nil {
			return
		}
		w.client = rest
		w.clientMessage(kind, body)
	}
}

// message cuts the first whole message off a stream; body is nil if there is none.
func message(b []byte) (kind byte, body, rest []byte) {
	if len(b) < 5 {
		return 0, nil, b
	}
	size := int(binary.BigEndian.Uint32(b[1:])) + 1
	if size < 5 || len(b) < size {
		return 0, nil, b
	}
	return b[0], b[5:size:size], b[size:]
}

func (w *Wire) clientMessage(kind byte, body []byte) {
	switch kind {
	case 'P': // Parse
		name, rest := text(body)
		sql, _ := text(rest)
		w.statements[name] = nameOf(sql)
	case 'B': // Bind
		portal, rest := text(body)
		name, _ := text(rest)
		w.portals[portal] = w.statements[name]
	case 'E': // Execute
		portal, _ := text(body)
		w.executed = w.portals[portal]
	case 'S': // Sync
		w.sent(w.executed)
		w.executed = ""
	case 'Q': // Query
		sql, _ := text(body)
		w.sent(nameOf(sql))
	}
}

func (w *Wire) sent(statement string) {
	w.pending = append(w.pending, statement)
	if statement != "" {
		w.add(Event{Kind: Sent, Statement: statement})
	}
}

// Server reads what the server sends.
func (w *Wire) Server(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ignored {
		return
	}
	w.server = append(w.server, b...)
	for {
		kind, body, rest := message(w.server)
		if body == nil {
			return
		}
		w.server = rest
		w.serverMessage(kind, body)
	}
}

func (w *Wire) serverMessage(kind byte, body []byte) {
	switch kind {
	case 'D': // DataRow
		w.answer.Row = row(body)
	case 'C': // CommandComplete
		w.answer.Tag, _ = text(body)
	case 'E': // ErrorResponse
		severity := ""
		for b := body; len(b) > 1; {
			field := b[0]
			var value string
			value, b = text(b[1:])
			switch field {
			case 'C':
				w.answer.State = value
			case 'V':
				severity = value
			}
		}
		if severity == "FATAL" || severity == "PANIC" {
			w.add(Event{Kind: Fatal, State: w.answer.State})
			w.over = true
		}
	case 'Z': // ReadyForQuery
		if len(w.pending) > 0 {
			w.answer.Kind, w.answer.Statement = Answered, w.pending[0]
			w.pending = w.pending[1:]
			if w.answer.Statement != "" {
				w.add(w.answer)
			}
		}
		w.answer = Event{}
	}
}

// Closed says that a stream has ended: the client's, or the server's. Only the first end says who was first.
func (w *Wire) Closed(client bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || w.ignored {
		return
	}
	w.over = true
	w.add(Event{Kind: map[bool]string{true: ClientClosed, false: ServerClosed}[client]})
}

// row is the start of a DataRow, as text. Drivers ask for some values in the binary format.
func row(body []byte) (values []string) {
	n := int(binary.BigEndian.Uint16(body))
	b := body[2:]
	for range min(n, 4) {
		size := int32(binary.BigEndian.Uint32(b))
		b = b[4:]
		if size < 0 {
			values = append(values, "")
			continue
		}
		v := b[:size]
		b = b[size:]
		s := string(v)
		switch {
		case size == 1 && v[0] <= 1:
			s = map[byte]string{0: "f", 1: "t"}[v[0]]
		case size == 8 && v[0] < ' ':
			s = fmt.Sprint(int64(binary.BigEndian.Uint64(v)))
		case size == 4 && v[0] < ' ':
			s = fmt.Sprint(int32(binary.BigEndian.Uint32(v)))
		}
		values = append(values, s)
	}
	return values
}

// text is a string that ends with a zero byte, and what follows.
func text(b []byte) (string, []byte) {
	i := bytes.IndexByte(b, 0)
	if i < 0 {
		return string(b), nil
	}
	return string(b[:i]), b[i+1:]
}

var queryName = regexp.MustCompile(`-- name: (\w+)`)

// nameOf is the name of one of this library's statements, or the first word of another.
func nameOf(sql string) string {
	if m := queryName.FindStringSubmatch(sql); m != nil {
		return m[1]
	}
	if words := strings.Fields(sql); len(words) > 0 {
		return strings.TrimRight(strings.ToUpper(words[0]), ";")
	}
	return "-"
}
