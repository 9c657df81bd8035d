//go:build unix

package mimic

import (
	"encoding/binary"
	"io"
	"strings"
)

// Read reads a message of the wire protocol. The first one of a client has no type.
func Read(from io.Reader, typed bool) (kind byte, body []byte, err error) {
	head := make([]byte, 5)
	if !typed {
		head = head[1:]
	}
	if _, err := io.ReadFull(from, head); err != nil {
		return 0, nil, err
	}
	if typed {
		kind = head[0]
	}
	body = make([]byte, binary.BigEndian.Uint32(head[len(head)-4:])-4)
	_, err = io.ReadFull(from, body)
	return kind, body, err
}

// Frame is a message with a type, as it is sent.
func Frame(kind byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4)), body...)
}

// Statements are those that a client has prepared, by name.
type Statements map[string]string

// Executed returns the statement that a message of the client executes, or "". It notes what is prepared.
func (s Statements) Executed(kind byte, body []byte) string {
	fields := strings.SplitN(string(body), "\x00", 3)
	switch kind {
	case 'P':
		s[fields[0]] = fields[1]
	case 'B':
		return s[fields[1]]
	case 'Q':
		return fields[0]
	}
	return ""
}
