// Package lockkey derives the keys of advisory locks. docs/protocol.md lists them all.
package lockkey

import (
	"crypto/sha256"
	"encoding/binary"
)

// FromName is the key of the election of that name.
func FromName(election string) int64 { return OfText("pgelector:" + election) }

// Of is the key of another lock of the election with that key.
func Of(purpose string, key int64) int64 {
	return OfText(string(binary.BigEndian.AppendUint64([]byte("pgelector "+purpose+":"), uint64(key))))
}

// OfText is the first eight bytes of the text's SHA-256, big-endian.
func OfText(text string) int64 {
	sum := sha256.Sum256([]byte(text))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// Halves are the two integers of a lock in the key space of two integers (PostgreSQL
// manual, 9.27.10), where no election's lock can be.
func Halves(key int64) (high, low int32) { return int32(key >> 32), int32(key) }
