//go:build unix

package pgcluster

import "time"

// LeadTo makes new connections reach these servers in turn, as after a failover, or behind an address of
// several servers. A connection whose turn is nil is reset. Existing connections stay.
func (p *Proxy) LeadTo(servers ...*Cluster) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.route, p.made, p.diverted = addresses(servers), 0, nil
}

// Divert makes the next connections reach these servers, one each. Those after them lead where LeadTo says.
func (p *Proxy) Divert(servers ...*Cluster) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.diverted = append(p.diverted, addresses(servers)...)
}

// Refuse refuses new connections for so long. Existing connections stay.
func (p *Proxy) Refuse(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = time.Now().Add(d)
}

func addresses(servers []*Cluster) (all []string) {
	for _, c := range servers {
		if c == nil {
			all = append(all, "")
		} else {
			all = append(all, c.Addr())
		}
	}
	return all
}

// next returns where a new connection leads. The caller holds p.mu.
func (p *Proxy) next() (upstream string) {
	if time.Now().Before(p.refusing) {
		return ""
	}
	if len(p.diverted) > 0 {
		upstream, p.diverted = p.diverted[0], p.diverted[1:]
		return upstream
	}
	if len(p.route) == 0 {
		return ""
	}
	p.made++
	return p.route[(p.made-1)%len(p.route)]
}

// SlowStart delays the first bytes of each new connection by d, as a pooler does that starts, or a proxy that
// looks a name up.
func (p *Proxy) SlowStart(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first = d
}
