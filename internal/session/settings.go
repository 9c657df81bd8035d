package session

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/pgelector/pgelector/internal/lease"
)

// A Setting is one parameter of a session. All die with it, because it is discarded.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

const (
	LeaseSetting = "idle_session_timeout"
	LeaseInside  = "idle_in_transaction_session_timeout" // the lease in transaction scope
)

// settings are what a session needs: the lease, and what keeps a role's defaults from
// ending the session. (PostgreSQL manual, 20.11.1 and 20.3.2. TCP settings are ignored on
// Unix sockets.) A connection that is silent is cut after a lease, also where the kernel knows no
// tcp_user_timeout but counts its probes (macOS, the BSDs): sooner, a leader would believe that
// it has the lock.
func settings(name string, l lease.Lease) []Setting {
	const probes = 3
	length := int(math.Ceil(l.Length.Seconds()))
	interval := max(length/(probes+1), 1)
	return []Setting{
		{"application_name", name},
		{"search_path", "pg_catalog, pg_temp"}, // no statement needs another schema
		{LeaseSetting, millis(l.Length)},
		{"statement_timeout", millis(l.Length)},
		{"lock_timeout", "0"},
		{"transaction_timeout", "0"}, // 17 and newer
		{LeaseInside, millis(l.Length)},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_deferrable", "off"}, // or a heartbeat may wait for other transactions
		{"synchronous_commit", "local"},           // the token outlives a crash, and waits for no standby
		{"plan_cache_mode", "force_generic_plan"}, // a statement is planned when it is prepared, and not again
		{"jit", "off"},                            // compiling takes longer than any statement
		{"client_connection_check_interval", millis(l.Heartbeat)},
		{"tcp_user_timeout", millis(l.Length)},
		{"tcp_keepalives_idle", strconv.Itoa(max(length-probes*interval, 1))},
		{"tcp_keepalives_interval", strconv.Itoa(interval)},
		{"tcp_keepalives_count", strconv.Itoa(probes)},
	}
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// KeySetting tells the statements of a transaction the key of the lock.
func KeySetting(key int64) Setting { return Setting{"pgelector.key", strconv.FormatInt(key, 10)} }

// Encode writes a parameter as JSON text: the one form that both drivers and sqlc pass on
// as it is.
func Encode(parameter any) string {
	text, _ := json.Marshal(parameter) // strings and integers only: cannot fail
	return string(text)
}

// By locks of two integers a session tells others about itself: [db.TryLock] documents them.
const (
	leaseClass       = 318473925  // the second integer is the lease in milliseconds
	leaseClassInside = 1530767677 // the same, in transaction scope
	sinceClass       = 521961639  // the second is the time at which the term began, in seconds
)
