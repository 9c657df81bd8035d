package electortest

import "time"

// role is the only role. It may see everything.
const role = "postgres"

// seen returns a backend's row of pg_stat_activity.
func seen(b *backend) []any {
	application, _ := b.settings.get("application_name")
	return []any{int64(b.pid), application, role, "", b.started.UnixMicro()}
}

// micros returns a time in microseconds, or 0 for none.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func holderOf(x *execution, m *message) (a Answer, err error) {
	if h := x.server.holder(bigint(m.integer(0))); h != nil {
		a.Rows = append(a.Rows, seen(h))
	}
	return a, nil
}

func waitersOf(x *execution, m *message) (a Answer, err error) {
	if l := x.server.locks.locks[bigint(m.integer(0))]; l != nil {
		for _, w := range l.queue {
			a.Rows = append(a.Rows, append(seen(w.b), micros(w.since)))
		}
	}
	return a, nil
}

func leaders(x *execution, m *message) (a Answer, err error) {
	keys, err := m.integers(0)
	for _, key := range keys {
		if h := x.server.holder(bigint(key)); h != nil {
			application, _ := h.settings.get("application_name")
			a.Rows = append(a.Rows, []any{key, int64(h.pid), application})
		}
	}
	return a, err
}

func advisoryLocks(x *execution, _ *message) (a Answer, err error) {
	for _, row := range x.server.lockRows() {
		if row.Guard || row.Shared {
			continue
		}
		b := x.server.backends[row.PID]
		line := append([]any{row.Key, row.Granted}, seen(b)...)
		a.Rows = append(a.Rows, append(line, micros(row.Since)))
	}
	return a, nil
}
