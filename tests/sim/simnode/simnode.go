// Package simnode is a simulated node: resctrl, cgroups and proc mounted in one
// directory over real processes, for the demo and for black-box tests. It can
// be used as a library, or run as a process that takes commands.
package simnode

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/fusemount"
)

// Node is a mounted simulated node.
type Node struct {
	*fusemount.Mount
	Source *sim.ProcSource
}

// Start mounts a node of cfg at dir.
func Start(dir string, cfg sim.Config) (*Node, error) {
	source := sim.NewProcSource("/proc", false)
	m, err := fusemount.New(dir, fusemount.Options{
		Model:    sim.New(cfg, sim.RealClock{}, source),
		Cgroups:  sim.NewCgroups(source),
		Source:   source,
		HostProc: "/proc",
	})
	if err != nil {
		return nil, err
	}
	return &Node{Mount: m, Source: source}, nil
}

// Reboot forgets all groups and cgroups and gives out another boot id. The
// processes of before are the caller's to end.
func (n *Node) Reboot(bootID string) {
	n.Model.Reboot(true)
	n.Cgroups.Clear()
	n.SetBootID(bootID)
}

// Command is one order to the process, a JSON object a line.
type Command struct {
	// Cmd is num_rmids (n), limbo (duration), mount, unmount, boot_id (id),
	// reboot (id), fault (op, path, errno, delay, times), clear_faults,
	// add_cgroup (path), remove_cgroup (path), add_process (path, pid), rmids.
	Cmd      string `json:"cmd"`
	N        int    `json:"n,omitempty"`
	Duration string `json:"duration,omitempty"` // "1.5s"
	ID       string `json:"id,omitempty"`
	Op       string `json:"op,omitempty"`
	Path     string `json:"path,omitempty"`
	Errno    string `json:"errno,omitempty"` // "EIO"
	Delay    string `json:"delay,omitempty"`
	Times    int    `json:"times,omitempty"`
	PID      int    `json:"pid,omitempty"`
}

// Reply answers a Command; rmids are filled by every one.
type Reply struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	Free  int    `json:"rmids_free"`
	Limbo int    `json:"rmids_limbo"`
	Used  int    `json:"rmids_used"`
}

// Do carries out one command.
func (n *Node) Do(c Command) Reply {
	err := n.do(c)
	r := Reply{OK: err == nil}
	if err != nil {
		r.Error = err.Error()
	}
	r.Free, r.Limbo, r.Used = n.Model.RMIDs()
	return r
}

func (n *Node) do(c Command) error {
	switch c.Cmd {
	case "rmids":
		return nil
	case "num_rmids":
		if c.N < 1 {
			return fmt.Errorf("num_rmids: n is %d, it must be 1 at least", c.N)
		}
		n.Model.SetNumRMIDs(c.N)
	case "limbo":
		d, err := time.ParseDuration(c.Duration)
		if err != nil {
			return err
		}
		n.Model.SetLimbo(d)
	case "mount":
		return n.Model.Mount()
	case "unmount":
		return n.UnmountResctrl()
	case "boot_id":
		n.SetBootID(c.ID)
	case "reboot":
		n.Reboot(c.ID)
	case "fault":
		return n.fault(c)
	case "clear_faults":
		n.Faults.Clear()
	case "add_cgroup":
		return n.Cgroups.AddCgroup(c.Path)
	case "remove_cgroup":
		return n.Cgroups.RemoveCgroup(c.Path)
	case "add_process":
		return n.Cgroups.AddProcess(c.Path, c.PID)
	default:
		return fmt.Errorf("unknown command %q", c.Cmd)
	}
	return nil
}

func (n *Node) fault(c Command) error {
	fault := fusemount.Fault{Op: c.Op, Path: c.Path, Times: c.Times}
	if c.Errno != "" {
		fault.Errno = errno(c.Errno)
		if fault.Errno == 0 {
			return fmt.Errorf("fault: no error is called %q", c.Errno)
		}
	}
	if c.Delay != "" {
		d, err := time.ParseDuration(c.Delay)
		if err != nil {
			return err
		}
		fault.Delay = d
	}
	if fault.Errno == 0 && fault.Delay == 0 {
		return errors.New("fault: neither errno nor delay")
	}
	n.Faults.Add(fault)
	return nil
}

// errno finds an error by its name, 0 where there is none.
func errno(name string) syscall.Errno {
	const last = 133 // EHWPOISON
	for e := syscall.Errno(1); e <= last; e++ {
		if unix.ErrnoName(e) == name {
			return e
		}
	}
	return 0
}
