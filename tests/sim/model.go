package sim

import (
	"sync"
	"syscall"
	"time"
)

// defaultThreshold is max_threshold_occupancy of the emulated CPU, in bytes.
const defaultThreshold = 524288

// group is the default group, a control group or a monitoring group. A nil
// parent is a control group's (or the default group's).
type group struct {
	id       int
	name     string
	parent   *group // of a monitoring group: its control group
	children map[string]*group
	closid   int
	rmid     *rmid // nil without monitoring
	removed  bool

	cpus  uint64
	mode  string
	cbm   []uint64 // by L3 domain
	mb    []uint64 // by L3 domain, percent
	attrs map[Node]override
	inos  map[Node]uint64
	made  time.Time
	moved time.Time // of the tasks file: the last write
	uid   uint32
	gid   uint32
	perm  uint32 // of the group's directory
}

func (g *group) monitoring() bool { return g.parent != nil }

// control is the control group that g is or belongs to.
func (g *group) control() *group {
	if g.parent != nil {
		return g.parent
	}
	return g
}

// Model is one resctrl filesystem and the CPU below it. Its errors are
// syscall.Errno. It is safe for use by several goroutines.
type Model struct {
	mu     sync.Mutex
	cfg    Config
	clock  Clock
	source TaskSource

	mounted   bool
	bare      *group // stands for the empty mount point while unmounted
	root      *group
	lastRoot  *group            // of the last mount
	groups    map[string]*group // control groups by name, without the root
	closids   []bool
	rmids     *rmidPool
	threshold uint64
	status    status
	procs     map[int]*proc
	open      int // descriptors that keep the filesystem busy, of this boot
	boot      int
	nextID    int
	nextIno   uint64
	syncErr   error
}

// New returns a model of cfg, mounted unless cfg says otherwise.
func New(cfg Config, clock Clock, source TaskSource) *Model {
	m := &Model{
		cfg: cfg, clock: clock, source: source,
		threshold: defaultThreshold, procs: map[int]*proc{}, nextIno: 16,
	}
	m.rmids = newRMIDPool(&m.cfg, clock.Now())
	m.bare = m.newGroup("", nil)
	m.lastRoot = m.bare
	if !cfg.Unmounted && m.supported() {
		m.mount()
	}
	if n, ok := source.(Notifier); ok {
		n.Notify(m.Sync)
	}
	m.Sync()
	return m
}

func (m *Model) supported() bool { return m.cfg.Monitoring || m.cfg.Allocation }

func (m *Model) newGroup(name string, parent *group) *group {
	m.nextID++
	now := m.clock.Now()
	return &group{
		id: m.nextID, name: name, parent: parent, children: map[string]*group{}, mode: modeShareable,
		attrs: map[Node]override{}, inos: map[Node]uint64{}, made: now, moved: now, perm: 0o755,
	}
}

func (m *Model) mount() {
	m.mounted = true
	m.groups = map[string]*group{}
	m.closids = make([]bool, m.cfg.NumCLOSIDs)
	m.closids[0] = true
	m.status.clear()
	old := m.lastRoot
	m.root = m.newGroup("", nil)
	m.root.perm = 0o555
	if kept, ok := old.attrs[Node{g: old}]; ok && m.cfg.Kernel61 {
		m.root.attrs[Node{g: m.root}] = kept // 6.1 has one root directory for ever
	}
	m.lastRoot = m.root
	m.root.cpus = 1<<m.cfg.CPUs - 1
	m.initControls(m.root)
	if !m.cfg.Monitoring {
		return
	}
	if r := m.rmids.used[0]; r != nil {
		m.root.rmid = r
		return
	}
	m.root.rmid, _ = m.rmids.take(m.clock.Now())
}

// Mount mounts resctrl: EBUSY where it is mounted already, ENODEV where the
// CPU has neither monitoring nor allocation.
func (m *Model) Mount() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.supported():
		return syscall.ENODEV
	case m.mounted:
		return syscall.EBUSY
	}
	m.mount()
	m.sync()
	return nil
}

// Unmount drops all groups; every task is in the default group afterwards.
// EBUSY while a descriptor below the root is open, EINVAL where nothing is
// mounted. The root group keeps its RMID over it.
func (m *Model) Unmount() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mounted {
		return syscall.EINVAL
	}
	if m.open > 0 {
		return syscall.EBUSY
	}
	m.sync()
	m.dropAll()
	return nil
}

func (m *Model) dropAll() {
	for _, g := range m.groups {
		m.removeControl(g)
	}
	for _, g := range m.root.children {
		m.removeMonitoring(g)
	}
	m.root.removed = true
	m.mounted, m.root, m.groups = false, nil, nil
	m.resetMembership()
}

// Reboot plays the machine's: no group is left, all RMIDs are free, and resctrl
// is mounted or not, as mounted says. Descriptors from before read ENODEV.
func (m *Model) Reboot(mounted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mounted {
		m.dropAll()
	}
	m.rmids = newRMIDPool(&m.cfg, m.clock.Now())
	m.boot++ // what is open does not count any more
	m.open, m.threshold = 0, defaultThreshold
	if mounted && m.supported() {
		m.mount()
	}
	m.sync()
}

// Mounted says whether resctrl is mounted.
func (m *Model) Mounted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mounted
}

// Source is the model's task source.
func (m *Model) Source() TaskSource { return m.source }

// Config returns the present configuration.
func (m *Model) Config() Config {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cfg
}

// SetNumRMIDs changes the number of RMIDs; those in use stay so until removed.
func (m *Model) SetNumRMIDs(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rmids.resize(n)
}

// SetLimbo changes how long RMIDs that are removed from now on stay in limbo.
func (m *Model) SetLimbo(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cfg.Limbo = d
}

// RMIDs says how many RMIDs are free, in limbo and used, the root's included.
func (m *Model) RMIDs() (free, limbo, used int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rmids.drain(m.clock.Now())
	return len(m.rmids.free), len(m.rmids.limbo), len(m.rmids.used)
}

// RMID is the RMID of the group at path (below the root, "" is the root);
// ENOENT where there is none.
func (m *Model) RMID(path string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.walk(path)
	if err != nil {
		return 0, err
	}
	if n.dir != dirGroup || n.file != "" || n.g.rmid == nil {
		return 0, syscall.ENOENT
	}
	return n.g.rmid.id, nil
}

// removeMonitoring takes away g; its tasks stay in its control group.
func (m *Model) removeMonitoring(g *group) {
	delete(g.parent.children, g.name)
	m.reassign(g, g.parent)
	m.release(g)
}

// removeControl takes away g with its monitoring groups; their tasks and CPUs
// go to the default group.
func (m *Model) removeControl(g *group) {
	delete(m.groups, g.name)
	for _, child := range g.children {
		m.reassign(child, m.root)
		m.release(child)
	}
	m.reassign(g, m.root)
	m.root.cpus |= g.cpus
	m.closids[g.closid] = false
	m.release(g)
}

func (m *Model) release(g *group) {
	g.removed = true
	if g.rmid != nil {
		m.rmids.put(g.rmid, m.threshold, m.clock.Now())
	}
	m.recount()
}
