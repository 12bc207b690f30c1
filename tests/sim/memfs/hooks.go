package memfs

import "sync"

// Op names a call of resctrl.OS.
type Op string

// The calls. Unlock is logged when a lock is released; it cannot fail.
const (
	OpStatfs    Op = "statfs"
	OpMkdir     Op = "mkdir"
	OpRmdir     Op = "rmdir"
	OpRename    Op = "rename"
	OpIsDir     Op = "isdir"
	OpReadDir   Op = "readdir"
	OpReadFile  Op = "readfile"
	OpWriteFile Op = "writefile"
	OpLock      Op = "lock"
	OpUnlock    Op = "unlock"
	OpMount     Op = "mount"
)

// Call is one call, as logged and as hooks see it.
type Call struct {
	Op   Op
	N    int    // the how manieth of its Op since New or Reset, from 1
	Path string // as it was given
	To   string // of a rename
	Data string // of a write
	Err  error  // what it returned; nil in a Before hook
}

type hook struct {
	op     Op
	n      int
	before func(Call) error
	after  func(Call)
}

// Before runs f before the n-th call of op (0: before each). An error of f is
// returned instead of making the call. Hooks run without any lock held: they
// may use the FS and the model, and may panic to play a crash.
func (f *FS) Before(op Op, n int, do func(Call) error) {
	f.addHook(hook{op: op, n: n, before: do})
}

// After runs f after the n-th call of op (0: after each), failed or not.
func (f *FS) After(op Op, n int, do func(Call)) {
	f.addHook(hook{op: op, n: n, after: do})
}

// Fail makes the n-th call of op (0: each) return err.
func (f *FS) Fail(op Op, n int, err error) {
	f.Before(op, n, func(Call) error { return err })
}

func (f *FS) addHook(h hook) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hooks = append(f.hooks, h)
}

// Calls is the log of the calls of the given ops, or of all of them.
func (f *FS) Calls(ops ...Op) []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []Call
	for _, c := range f.log {
		if len(ops) == 0 || has(ops, c.Op) {
			list = append(list, c)
		}
	}
	return list
}

// Count is how many calls of op were made.
func (f *FS) Count(op Op) int { return len(f.Calls(op)) }

// Reset forgets the log and all hooks, and counts from 1 again.
func (f *FS) Reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log, f.hooks, f.count = nil, nil, map[Op]int{}
}

// call runs do between its hooks and logs the outcome.
func (f *FS) call(c Call, do func() error) error {
	f.mu.Lock()
	f.count[c.Op]++
	c.N = f.count[c.Op]
	var due []hook
	for _, h := range f.hooks {
		if h.op == c.Op && (h.n == 0 || h.n == c.N) {
			due = append(due, h)
		}
	}
	f.mu.Unlock()

	// Also a call whose hook panics is logged.
	var logged sync.Once
	record := func() {
		logged.Do(func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.log = append(f.log, c)
		})
	}
	defer record()
	for _, h := range due {
		if h.before != nil && c.Err == nil {
			c.Err = h.before(c)
		}
	}
	if c.Err == nil {
		c.Err = do()
	}
	record()
	for _, h := range due {
		if h.after != nil {
			h.after(c)
		}
	}
	return c.Err
}

func has(ops []Op, op Op) bool {
	for _, o := range ops {
		if o == op {
			return true
		}
	}
	return false
}
