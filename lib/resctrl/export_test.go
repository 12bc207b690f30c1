package resctrl

import "time"

// RealOS lets the tests do what others on the node do.
func RealOS() OS { return realOS{} }

// MaxPasses is the bound of an assignment.
const MaxPasses = maxPasses

// SetLockWait sets how long a change waits for the lock of the root.
func (f *FS) SetLockWait(d time.Duration) { f.lockWait = d }
