package electortest

import "time"

// The statements that look who leads and who waits. The one role of this server
// may see everything, and is called postgres.
const role = "postgres"

// seen is what pg_stat_activity says of a backend.
func seen(b *backend) []any {
	application, _ := b.settings.get("application_name")
	return []any{int64(b.pid), application, role, "", b.started}
}

// null is a time that is not there when it is zero.
func null(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

func holderOf(x *execution, m *message) (a Answer, err error) {
	if h := x.server.holder(m.integer(0)); h != nil {
		a.Rows = append(a.Rows, seen(h))
	}
	return a, nil
}

func waitersOf(x *execution, m *message) (a Answer, err error) {
	if l := x.server.locks.locks[bigint(m.integer(0))]; l != nil {
		for _, w := range l.queue {
			a.Rows = append(a.Rows, append(seen(w.b), null(w.since)))
		}
	}
	return a, nil
}

func leaders(x *execution, m *message) (a Answer, err error) {
	keys, err := m.integers(0)
	for _, key := range keys {
		if h := x.server.holder(key); h != nil {
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
		a.Rows = append(a.Rows, append(line, null(row.Since)))
	}
	return a, nil
}
