// Package fusemount mounts the simulated node's trees for unchanged programs:
// resctrl/ (the model), cgroup/ (a cgroup v2 tree) and proc/ (what the programs
// read below [proc] root).
//
// Root mounts directly; any other user needs fusermount3. Nothing is cached by
// the kernel, so that no program ever sees what was.
package fusemount

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/tests/sim"
)

// Names of the three trees in the mounted directory.
const (
	ResctrlDir = "resctrl"
	CgroupDir  = "cgroup"
	ProcDir    = "proc"
)

// Options says what is mounted.
type Options struct {
	Model   *sim.Model
	Cgroups *sim.Cgroups
	Source  sim.TaskSource // of both
	// HostProc is where proc/<pid>/status and the like are read from for real
	// processes; "" makes them up from Source.
	HostProc string
	BootID   string // sys/kernel/random/boot_id; "" is a fixed one
}

// defaultBootID stands for the first boot.
const defaultBootID = "00000000-0000-4000-8000-000000000001"

// Mount is a mounted node.
type Mount struct {
	Dir     string
	Model   *sim.Model
	Cgroups *sim.Cgroups
	Faults  *Faults

	source   sim.TaskSource
	hostProc string
	owner    fuse.Owner // of what belongs to root in the model
	server   *fuse.Server
	guard    *guard

	mu     sync.Mutex
	bootID string
	done   bool
}

// New mounts at dir, which is made if it is missing. A mount that a crashed
// process left there is removed first.
//
// The error of an ordinary user without fusermount3 names the package and the
// command that installs it.
func New(dir string, o Options) (*Mount, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); errors.Is(err, syscall.ENOTCONN) {
		if err := detach(dir); err != nil {
			return nil, fmt.Errorf("unmount what a crashed process left at %s: %w", dir, err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := usable(); err != nil {
		return nil, err
	}
	m := &Mount{
		Dir: dir, Model: o.Model, Cgroups: o.Cgroups, Faults: &Faults{},
		source: o.Source, hostProc: o.HostProc, bootID: o.BootID,
		owner: fuse.Owner{Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())},
	}
	if m.bootID == "" {
		m.bootID = defaultBootID
	}
	if m.server, err = m.serve(); err != nil {
		return nil, fmt.Errorf("mount the simulator at %s: %w", dir, err)
	}
	if m.guard, err = newGuard(dir); err != nil {
		return nil, errors.Join(err, m.Unmount())
	}
	return m, nil
}

// usable says what is missing for a FUSE mount, and what installs it.
func usable() error {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return fmt.Errorf("the simulator needs FUSE, and there is no /dev/fuse: as root, run: modprobe fuse (%w)", err)
	}
	if os.Geteuid() == 0 {
		return nil
	}
	if err := unix.Access("/dev/fuse", unix.R_OK|unix.W_OK); err != nil {
		return fmt.Errorf("the simulator needs /dev/fuse, which user %d may not open: as root, run: chmod 0666 /dev/fuse, as udev does (or run as root) (%w)", os.Geteuid(), err)
	}
	if _, err := exec.LookPath("fusermount3"); err == nil {
		return nil
	}
	if _, err := exec.LookPath("/bin/fusermount3"); err == nil {
		return nil
	}
	return errors.New("the simulator needs fusermount3 to mount as an ordinary user; install Debian's package fuse3: sudo apt-get install fuse3 (or run as root)")
}

// Resctrl is the path of the resctrl tree.
func (m *Mount) Resctrl() string { return filepath.Join(m.Dir, ResctrlDir) }

// Cgroup is the path of the cgroup tree.
func (m *Mount) Cgroup() string { return filepath.Join(m.Dir, CgroupDir) }

// Proc is the path of the proc tree.
func (m *Mount) Proc() string { return filepath.Join(m.Dir, ProcDir) }

// releasePatience is how long a close(2) may take to be told: FUSE releases
// files after the call has returned.
const releasePatience = 2 * time.Second

// UnmountResctrl is umount(8) of resctrl: the model's Unmount, which a file
// that was closed just before does not hinder.
func (m *Mount) UnmountResctrl() error {
	for end := time.Now().Add(releasePatience); ; time.Sleep(time.Millisecond) {
		if err := m.Model.Unmount(); !errors.Is(err, syscall.EBUSY) || time.Now().After(end) {
			return err
		}
	}
}

// BootID is what sys/kernel/random/boot_id says.
func (m *Mount) BootID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bootID
}

// SetBootID plays a reboot, as far as boot_id tells of it.
func (m *Mount) SetBootID(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bootID = id
}
