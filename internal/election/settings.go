package election

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/internal/lease"
)

// A Setting is one parameter of a session. All settings end with the session, because its connection is closed.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// settingsOf are what a session needs: the lease, and what keeps a role's defaults from ending the session. (PostgreSQL
// manual, 20.11.1 and 20.3.2. A server ignores TCP settings on Unix sockets.) A connection that is silent is cut after a
// lease, also by a system that knows no tcp_user_timeout but counts its probes (macOS, the BSDs). If the connection was cut
// sooner, a leader would believe that it has the lock.
func settingsOf(name string, l lease.Lease) []Setting {
	const probes = 3
	length := int(math.Ceil(l.Length.Seconds()))
	interval := max(length/(probes+1), 1)
	return []Setting{
		{"application_name", name},
		{"search_path", "pg_catalog, pg_temp"}, // no statement needs another schema
		{"idle_session_timeout", millis(l.Length)},
		{"statement_timeout", millis(l.Length)},
		{"lock_timeout", "0"},
		{"transaction_timeout", "0"}, // 17 and newer
		{"idle_in_transaction_session_timeout", millis(l.Length)},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_deferrable", "off"}, // or a heartbeat may wait for other transactions
		{"synchronous_commit", "local"},           // the token outlives a crash, and waits for no standby
		{"plan_cache_mode", "force_generic_plan"}, // a statement is planned when it is prepared, and not again
		{"jit", "off"}, // compiling takes longer than any statement
		{"client_connection_check_interval", millis(l.Heartbeat)},
		{"tcp_user_timeout", millis(l.Length)},
		{"tcp_keepalives_idle", strconv.Itoa(max(length-probes*interval, 1))},
		{"tcp_keepalives_interval", strconv.Itoa(interval)},
		{"tcp_keepalives_count", strconv.Itoa(probes)},
	}
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Encode writes a value as JSON text, the one form that both drivers pass on as it is.
func Encode(value any) string {
	text, _ := json.Marshal(value) // of strings and numbers: cannot fail
	return string(text)
}
