//go:build unix

package pgcluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pgelector/pgelector/e2e/sandbox"
)

// Option changes how a cluster is started.
type Option func(*options) error

type options struct {
	settings []setting
	clock    bool // see WithClock
}

// setting is one line of a postgresql.conf.
type setting struct{ name, value string }

// WithSetting sets a server setting, as in postgresql.conf: WithSetting("max_connections", "20").
// A later one overrides an earlier one, and ALTER SYSTEM overrides both. The settings that place the
// cluster (port, listen_addresses, unix_socket_directories, data_directory) are refused.
func WithSetting(name, value string) Option {
	placing := []string{"port", "listen_addresses", "unix_socket_directories", "data_directory"}
	return func(o *options) error {
		if slices.Contains(placing, strings.ToLower(name)) {
			return fmt.Errorf("pgcluster: setting %s is chosen by Start; leave it out", name)
		}
		o.settings = append(o.settings, setting{name, value})
		return nil
	}
}

// throwAway are the settings of every cluster.
var throwAway = []setting{
	{"listen_addresses", sandbox.Loopback},
	{"unix_socket_directories", ""},
	// Speed instead of durability, and little memory.
	{"fsync", "off"},
	{"full_page_writes", "off"},
	{"shared_buffers", "16MB"},
	// Kept in files below the data directory, so that they go with it even after kill -9.
	{"dynamic_shared_memory_type", "mmap"},
	// For standbys, which have no slot: enough WAL for one that was away, and a quick reconnect.
	{"wal_level", "replica"},
	{"max_wal_senders", "10"},
	{"wal_keep_size", "128MB"},
	{"wal_retrieve_retry_interval", "100ms"},
	// The log goes to standard error and so to server.log.
	{"logging_collector", "off"},
	{"log_destination", "stderr"},
	{"log_line_prefix", "%m [%p] %q%u@%d "},
	{"timezone", "UTC"},
	{"log_timezone", "UTC"},
}

func collect(opts []Option) (options, error) {
	var all options
	for _, opt := range opts {
		if err := opt(&all); err != nil {
			return all, err
		}
	}
	return all, nil
}

// confLines renders settings for postgresql.conf.
func confLines(settings []setting) string {
	quote := strings.NewReplacer(`'`, `''`, `\`, `\\`)
	var b strings.Builder
	for _, s := range settings {
		fmt.Fprintf(&b, "%s = '%s'\n", s.name, quote.Replace(s.value))
	}
	return b.String()
}
