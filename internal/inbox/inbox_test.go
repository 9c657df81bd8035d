package inbox

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/pgelector/pgelector/db"
)

// The statements repeat the constant, which other versions of the library know too.
func TestTheBellIsAHashOfItsName(t *testing.T) {
	sum := sha256.Sum256([]byte("pgelector bell"))
	if want := binary.BigEndian.Uint32(sum[:]) &^ (1 << 31); Bell != want {
		t.Errorf("it is %d, want %d", Bell, want)
	}
	for _, text := range []string{db.Ping, db.Ring, db.Requests} {
		if !strings.Contains(text, fmt.Sprint(Bell)) {
			t.Errorf("it is not in %s", text)
		}
	}
}
