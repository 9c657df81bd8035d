package session

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/db"
)

// The statements repeat the constants, which other versions of the library know too.
func TestClassesOfLocksAreHashesOfTheirNames(t *testing.T) {
	for _, c := range []struct {
		name  string
		class int
		used  []string
	}{
		{"bell", Bell, []string{db.Ping, db.Ring, db.Requests}},
		{"lease", leaseClass, []string{db.TryLock, db.PrepareWait, db.Holder, db.AdvisoryLocks}},
		{"lease in transaction", leaseClassInside, []string{db.TryTransactionLock, db.PrepareWait, db.Holder, db.AdvisoryLocks}},
		{"since", sinceClass, []string{db.Confirm, db.TryTransactionLock, db.TryInTransaction, db.Holder, db.AdvisoryLocks}},
	} {
		sum := sha256.Sum256([]byte("pgelector " + c.name))
		if want := binary.BigEndian.Uint32(sum[:]) &^ (1 << 31); uint32(c.class) != want {
			t.Errorf("%s is %d, want %d", c.name, c.class, want)
		}
		for _, text := range c.used {
			if !strings.Contains(text, fmt.Sprint(c.class)) {
				t.Errorf("%s is not in %s", c.name, text)
			}
		}
	}
}

// Package e2e/protocol checks the other vectors of that page.
func TestTheKeyOfCommitsIsThatOfTheProtocol(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	high, low := Halves(purposeKey("commit", hashKey("pgelector:orders")))
	if row := fmt.Sprintf("\n%-22s %d, %d\n", "commit", high, low); !strings.Contains(string(page), row) {
		t.Errorf("the page lacks%s", row)
	}
}
