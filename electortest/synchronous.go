package electortest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// replication is the server's knowledge of its synchronous standbys.
type replication struct {
	names   string // synchronous_standby_names
	streams []string
	cut     bool
	flushed int64         // the last transaction id on the standbys when they were cut off
	loaded  time.Time     // when the setting was last set
	changed chan struct{} // closed at the next change; nil if nobody waits
}

// SetSynchronousStandbys sets synchronous_standby_names, such as "FIRST 1 (s1)", and the
// names of the standbys that stream from this server. While the setting is not empty, a
// durable commit waits for them: see [Server.CutStandbys]. They are only names;
// [Server.NewStandby] makes a server that can be promoted. Default: "" and none.
func (s *Server) SetSynchronousStandbys(setting string, streaming ...string) {
	s.changeReplication(func(r *replication) { r.names, r.streams, r.loaded = setting, streaming, time.Now() })
}

// CutStandbys cuts the links to the standbys silently: the server still lists them, but
// commits wait until [Server.ReconnectStandbys] while synchronous_standby_names is not
// empty. A waiting commit keeps its locks, even if its client is gone. If it is cancelled
// (by Cancel, or because the client gives up), the server answers as if it had been
// acknowledged.
func (s *Server) CutStandbys() {
	s.changeReplication(func(r *replication) {
		if !r.cut {
			r.cut, r.flushed = true, s.lastXID
		}
	})
}

// ReconnectStandbys ends CutStandbys.
func (s *Server) ReconnectStandbys() { s.changeReplication(func(r *replication) { r.cut = false }) }

func (s *Server) changeReplication(change func(*replication)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.replication)
	if s.replication.changed != nil {
		close(s.replication.changed)
		s.replication.changed = nil
	}
}

// change returns a channel that the next change closes.
func (r *replication) change() <-chan struct{} {
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed
}

// awaitStandbys waits until the standbys acknowledge a commit. As in PostgreSQL, only a
// cancel ends the wait early, without an error.
func (x *execution) awaitStandbys() error {
	r := &x.server.replication
	if level, _ := x.settings.get("synchronous_commit"); level == "off" || level == "local" {
		return nil
	}
	for r.names != "" && r.cut {
		cancelled, err := x.awaitChange(r.change())
		if cancelled || err != nil {
			return err
		}
	}
	return nil
}

func (x *execution) awaitChange(changed <-chan struct{}) (cancelled bool, err error) {
	x.server.mu.Unlock()
	defer x.server.mu.Lock()
	select {
	case <-changed:
	case <-x.cancelled:
		cancelled = true
	case <-x.gone:
		return false, errGone
	}
	if !x.awaitServer() {
		err = errGone
	}
	return cancelled, err
}

func commitSynchronously(x *execution, m *message) (Answer, error) {
	outcome, err := x.commitOutcome(m)
	lsn := "0/0"
	if outcome == "committed" {
		lsn = fmt.Sprintf("0/%X", x.xid())
	}
	r := &x.server.replication
	return one(outcome, int64(x.pid), lsn, r.names, r.loaded.UnixMicro()), err
}

// commitOutcome is the CASE of the statement.
func (x *execution) commitOutcome(m *message) (string, error) {
	if x.server.recovery {
		return "standby", nil
	}
	free, err := x.server.locks.try(x.backend, twoIntegers(m.integer(0), m.integer(1)), shared, byTransaction)
	if free || err != nil {
		return "elsewhere", err
	}
	first, err := x.server.locks.try(x.backend, twoIntegers(m.integer(2), m.integer(3)), exclusive, byTransaction)
	if !first {
		return "waiting", err
	}
	return "committed", err
}

func synchronousStandbys(x *execution, m *message) (Answer, error) {
	s := x.server
	var behind any
	lsn, err := strconv.ParseInt(strings.TrimPrefix(m.text(0), "0/"), 16, 64)
	if err != nil {
		return Answer{}, newError(invalidText, "invalid input syntax for type pg_lsn: %q", m.text(0))
	}
	if lsn != 0 {
		behind = s.replication.cut && lsn > s.replication.flushed
	}
	streams := []map[string]any{}
	for _, name := range s.replication.streams {
		streams = append(streams, map[string]any{"name": name, "behind": behind})
	}
	text, _ := json.Marshal(streams) // cannot fail
	return one(int64(x.pid), s.shownTimeline(), s.started.UnixMicro(), s.replication.names, s.replication.loaded.UnixMicro(), string(text)), nil
}
