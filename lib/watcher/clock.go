package watcher

import "time"

// Clock is the time that the watcher lives by; tests have their own.
type Clock interface {
	Now() time.Time
	// After gives a channel that gets a value once d has passed; stop gives
	// back what that takes.
	After(d time.Duration) (c <-chan time.Time, stop func())
}

// systemClock is the system's time.
type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) After(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
