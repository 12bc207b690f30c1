package fusemount

import (
	"strings"
	"sync"
	"syscall"
	"time"
)

// Fault makes calls on the resctrl tree fail or wait.
type Fault struct {
	Op    string        // mkdir, rmdir, rename, open, read, write
	Path  string        // only where the path below resctrl/ contains this; "" is every one
	Errno syscall.Errno // 0: the call is made, after Delay
	Delay time.Duration // before the call or its error
	Times int           // how often; 0: until cleared
}

// Faults is the list of faults in force.
type Faults struct {
	mu   sync.Mutex
	list []*Fault
}

// Add puts a fault into force.
func (f *Faults) Add(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, &fault)
}

// Clear ends all faults.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = nil
}

// hit gives the error of the first fault that fits, 0 where none does.
func (f *Faults) hit(op, path string) syscall.Errno {
	fault, ok := f.take(op, path)
	if !ok {
		return 0
	}
	if fault.Delay > 0 {
		time.Sleep(fault.Delay)
	}
	return fault.Errno
}

func (f *Faults) take(op, path string) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, fault := range f.list {
		if fault.Op != op || !strings.Contains(path, fault.Path) {
			continue
		}
		hit := *fault
		if fault.Times > 0 {
			if fault.Times--; fault.Times == 0 {
				f.list = append(f.list[:i:i], f.list[i+1:]...)
			}
		}
		return hit, true
	}
	return Fault{}, false
}
