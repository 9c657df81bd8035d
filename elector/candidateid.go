package elector

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// checkCandidateID says what keeps an id from being shown in application_name as it is.
func checkCandidateID(id string) error {
	if id == "" || len(id) > maxCandidateID {
		return fmt.Errorf("want 1 <= length <= %d bytes, but it is %d", maxCandidateID, len(id))
	}
	for i := range len(id) {
		if id[i] < ' ' || id[i] > '~' {
			return fmt.Errorf("want printable ASCII, but byte %d is %#x: PostgreSQL would replace it in application_name", i, id[i])
		}
	}
	return nil
}

// newCandidateID names a candidate after its host and process.
func newCandidateID(host string) string {
	if host == "" {
		host = "host"
	}
	printable := func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '-'
		}
		return r
	}
	var random [3]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	suffix := fmt.Sprintf("-%d-%s", os.Getpid(), hex.EncodeToString(random[:]))
	host = strings.Map(printable, host)
	return host[:min(len(host), maxCandidateID-len(suffix))] + suffix
}
