package elector

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"testing"
)

// The keys are those that psql 15 computes by the statement of KeyFromName's
// comment. A change would split every election in two during an upgrade.
var keys = map[string]int64{
	"orders":            -7492410215596134511,
	"billing/eu-west-1": -2991714905196165443,
	"выборы":            8592206458694887086,
	"a":                 -8185445610673149645,
	"outbox publisher":  4948570440837444456,
}

func TestKeyFromNameIsWhatPostgreSQLComputes(t *testing.T) {
	for name, want := range keys {
		if got := KeyFromName(name); got != want {
			t.Errorf("KeyFromName(%q) = %d, want %d", name, got, want)
		}
	}
}

func FuzzKeyFromName(f *testing.F) {
	for name := range keys {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		sum := sha256.Sum256([]byte("pgelector:" + name))
		bits, err := strconv.ParseUint(hex.EncodeToString(sum[:])[:16], 16, 64)
		if err != nil || KeyFromName(name) != int64(bits) {
			t.Errorf("KeyFromName(%q) = %d, want %d, %v", name, KeyFromName(name), int64(bits), err)
		}
	})
}
