package watcher

import (
	"sync"
	"time"
)

// fakeClock goes only when it is told to.
type fakeClock struct {
	mu    sync.Mutex
	now   time.Time
	timer map[chan time.Time]time.Time
	asked []time.Duration // of every After, in order
	more  *sync.Cond      // a timer was set
}

func newFakeClock() *fakeClock {
	c := &fakeClock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), timer: map[chan time.Time]time.Time{}}
	c.more = sync.NewCond(&c.mu)
	return c
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) After(d time.Duration) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan time.Time, 1)
	c.timer[ch] = c.now.Add(d)
	c.asked = append(c.asked, d)
	c.more.Broadcast()
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.timer, ch)
	}
}

// waitFor waits until somebody waits for exactly d from now on.
func (c *fakeClock) waitFor(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for _, at := range c.timer {
			if at.Equal(c.now.Add(d)) {
				return
			}
		}
		c.more.Wait()
	}
}

// advance lets time pass and fires what is due.
func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for ch, at := range c.timer {
		if !at.After(c.now) {
			ch <- c.now
			delete(c.timer, ch)
		}
	}
}
