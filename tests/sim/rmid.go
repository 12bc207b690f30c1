package sim

import (
	"sort"
	"time"
)

// rmid is one resource monitoring ID with its counters (of one domain: all
// domains of a group read alike but for the error words).
type rmid struct {
	id      int
	total   uint64 // mbm_total_bytes
	local   uint64 // mbm_local_bytes
	running bool   // a task is in its group
	left    time.Time
	ready   time.Time // in limbo until then
}

// rmidPool gives out RMIDs the way resctrl_arch does: the longest free first.
type rmidPool struct {
	cfg   *Config
	free  []*rmid
	limbo []*rmid
	used  map[int]*rmid
	since time.Time // counters are settled up to here
}

func newRMIDPool(cfg *Config, now time.Time) *rmidPool {
	p := &rmidPool{cfg: cfg, used: map[int]*rmid{}, since: now}
	for id := range cfg.NumRMIDs {
		p.free = append(p.free, &rmid{id: id})
	}
	return p
}

// take returns nil when none is free; limbo then says whether one will be.
func (p *rmidPool) take(now time.Time) (r *rmid, limbo bool) {
	p.drain(now)
	if len(p.free) == 0 {
		return nil, len(p.limbo) > 0
	}
	r = p.free[0]
	p.free = p.free[1:]
	*r = rmid{id: r.id}
	p.used[r.id] = r
	return r, false
}

// put frees r. It goes to limbo for Limbo, or longer where its cache lines
// take longer to be evicted.
func (p *rmidPool) put(r *rmid, threshold uint64, now time.Time) {
	delete(p.used, r.id)
	if r.running {
		r.left, r.running = now, false
	}
	r.ready = now.Add(p.cfg.Limbo)
	if at := p.below(r, threshold); at.After(r.ready) {
		r.ready = at
	}
	p.limbo = append(p.limbo, r)
	p.drain(now)
}

func (p *rmidPool) drain(now time.Time) {
	sort.SliceStable(p.limbo, func(i, j int) bool { return p.limbo[i].ready.Before(p.limbo[j].ready) })
	n := 0
	for n < len(p.limbo) && !p.limbo[n].ready.After(now) {
		if p.limbo[n].id < p.cfg.NumRMIDs {
			p.free = append(p.free, p.limbo[n])
		}
		n++
	}
	p.limbo = append([]*rmid(nil), p.limbo[n:]...)
}

// settle lets the counters of all running RMIDs grow up to now.
func (p *rmidPool) settle(now time.Time) {
	elapsed := now.Sub(p.since)
	if elapsed <= 0 {
		return
	}
	p.since = now
	gained := uint64(elapsed.Seconds() * float64(p.cfg.BytesPerSecond))
	for _, r := range p.used {
		if r.running {
			r.total += gained
			r.local += gained / 4 * 3
		}
	}
}

// occupancy is full while tasks run and decays evenly after the last left.
func (p *rmidPool) occupancy(r *rmid, now time.Time) uint64 {
	switch {
	case r.running:
		return p.cfg.OccupancyBytes
	case r.left.IsZero() || p.cfg.OccupancyDecay <= 0:
		return 0
	}
	rest := p.cfg.OccupancyDecay - now.Sub(r.left)
	if rest <= 0 {
		return 0
	}
	return uint64(float64(p.cfg.OccupancyBytes) * float64(rest) / float64(p.cfg.OccupancyDecay))
}

// below is the moment at which r occupies no more than threshold.
func (p *rmidPool) below(r *rmid, threshold uint64) time.Time {
	if r.left.IsZero() || p.cfg.OccupancyBytes <= threshold {
		return time.Time{}
	}
	share := 1 - float64(threshold)/float64(p.cfg.OccupancyBytes)
	return r.left.Add(time.Duration(share * float64(p.cfg.OccupancyDecay)))
}

// resize changes how many RMIDs the CPU has, which no real CPU does.
func (p *rmidPool) resize(n int) {
	for id := p.cfg.NumRMIDs; id < n; id++ {
		if p.used[id] == nil && !holds(p.limbo, id) {
			p.free = append(p.free, &rmid{id: id})
		}
	}
	p.cfg.NumRMIDs = n
	var free []*rmid
	for _, r := range p.free {
		if r.id < n {
			free = append(free, r)
		}
	}
	p.free = free
}

func holds(list []*rmid, id int) bool {
	for _, r := range list {
		if r.id == id {
			return true
		}
	}
	return false
}
