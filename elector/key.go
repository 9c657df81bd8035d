package elector

import (
	"crypto/sha256"
	"encoding/binary"
)

// KeyFromName derives an election's advisory lock key from its name: the first
// 8 bytes, big-endian, of SHA-256 over "pgelector:" and the name. PostgreSQL
// computes the same with
//
//	SELECT pg_catalog.concat('x', pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(
//	    pg_catalog.convert_to(pg_catalog.concat('pgelector:', $1::pg_catalog.text), 'UTF8')), 'hex'), 16))::bit(64)::bigint
//
// Two names that share a key would be one election; with 64 bits that is a
// chance of about one in 10^13 for a thousand names.
func KeyFromName(election string) int64 {
	sum := sha256.Sum256([]byte("pgelector:" + election))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}
