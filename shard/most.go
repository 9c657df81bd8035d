package shard

import "context"

// beyondAll is how many shards no member may lead, if all have this one's WithMost.
func (m *member) beyondAll() int {
	if m.most == 0 || m.beyond == nil || !m.isCounted() {
		return m.reported
	}
	return max(0, len(m.names)-m.most*len(m.present))
}

// report tells WithBeyond of a change, once a look has found at least as many shards without a leader.
func (m *member) report(ctx context.Context, s survey) {
	now := m.beyondAll()
	if now == m.reported || s.err != nil || len(s.free) < now {
		return
	}
	m.reported = now
	var unled []string
	if now > 0 {
		unled = s.free
	}
	m.beyond(ctx, now, unled)
}
