package sim

import (
	"sync"
	"time"
)

// Clock is the simulator's time: limbo, counters and mtimes follow it.
type Clock interface{ Now() time.Time }

// RealClock is the machine's clock.
type RealClock struct{}

// Now implements Clock.
func (RealClock) Now() time.Time { return time.Now() }

// ManualClock stands still until it is advanced.
type ManualClock struct {
	mu  sync.Mutex
	now time.Time
}

// NewManualClock returns a clock that stands at a fixed moment.
func NewManualClock() *ManualClock {
	return &ManualClock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

// Now implements Clock.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward by d.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
