package ctl

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// monitoringFlags are the flags of /proc/cpuinfo that resctrl's monitoring
// shows, on Intel and AMD alike (Documentation/filesystems/resctrl.rst).
func monitoringFlags() []string {
	return []string{"cqm_llc", "cqm_occup_llc", "cqm_mbm_total", "cqm_mbm_local"}
}

// checkCPU looks for monitoring in the flags of the first CPU.
func (a *app) checkCPU() finding {
	const check = "cpu"
	if a.cfg.Resctrl.Simulated {
		return finding{check, good, "does not matter: resctrl is simulated", ""}
	}
	file, err := os.Open(a.proc("cpuinfo"))
	if err != nil {
		return finding{check, warn, err.Error(), ""}
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		key, flags, _ := strings.Cut(lines.Text(), ":")
		if strings.TrimSpace(key) != "flags" {
			continue
		}
		have := strings.Fields(flags)
		there := slices.DeleteFunc(monitoringFlags(), func(f string) bool { return !slices.Contains(have, f) })
		if len(there) == 0 {
			return finding{check, fail, "no monitoring of caches or memory (none of the flags " + strings.Join(monitoringFlags(), ", ") + ")",
				"use a machine with Intel RDT or AMD QoS monitoring, enable it in the firmware; virtual machines mostly have none"}
		}
		return finding{check, good, "monitors caches or memory: " + strings.Join(there, ", "), ""}
	}
	return finding{check, warn, "no flags in " + file.Name() + ", so no x86 CPU", "what counts is whether resctrl can be mounted"}
}

// checkKernel looks for resctrl among the filesystems, and for its version.
func (a *app) checkKernel() finding {
	const check = "kernel"
	if a.cfg.Resctrl.Simulated {
		return finding{check, good, "does not matter: resctrl is simulated", ""}
	}
	release := "unknown release"
	if text, err := os.ReadFile(a.proc("sys/kernel/osrelease")); err == nil {
		release = trim(text)
	}
	text, err := os.ReadFile(a.proc("filesystems"))
	if err != nil {
		return finding{check, warn, err.Error(), ""}
	}
	if !slices.Contains(strings.Fields(string(text)), "resctrl") {
		return finding{check, fail, release + " has no resctrl filesystem",
			"it needs CONFIG_X86_CPU_RESCTRL and a CPU with RDT or QoS; look for rdt= on the kernel's command line and for resctrl in dmesg"}
	}
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err == nil && (major < 6 || major == 6 && minor < 1) {
		return finding{check, warn, release + " has resctrl, but is older than what was tested (6.1)", "a newer kernel"}
	}
	return finding{check, good, release + " has resctrl", ""}
}

// checkSocket looks at the runtime's NRI socket without connecting: the
// runtime would take a connection for a plugin that never registers.
func (a *app) checkSocket() finding {
	const check = "nri socket"
	const enable = "start the runtime and enable NRI in it (containerd 1.7: [plugins.\"io.containerd.nri.v1.nri\"] disable = false; CRI-O: enable_nri = true), or correct nri_socket"
	path := a.cfg.Watcher.NRISocket
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return finding{check, fail, path + " does not exist", enable}
	case errors.Is(err, fs.ErrPermission):
		return finding{check, warn, path + ": no permission to look", "look as root"}
	case err != nil:
		return finding{check, fail, err.Error(), enable}
	case info.Mode().Type() != fs.ModeSocket:
		return finding{check, fail, path + " is no socket", enable}
	}
	text, err := os.ReadFile(a.proc("net/unix"))
	if err == nil && !listens(string(text), path) {
		return finding{check, warn, path + " is there, but nobody in this network namespace listens on it", "did the runtime end? It makes the socket again when it starts"}
	}
	return finding{check, good, path, ""}
}

// listens looks in /proc/net/unix for a listening socket at path.
func listens(table, path string) bool {
	const listening = "00010000" // __SO_ACCEPTCON, net/unix/af_unix.c
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	for line := range strings.Lines(table) {
		// Num RefCount Protocol Flags Type St Inode Path
		w := strings.Fields(line)
		if len(w) < 8 || w[3] != listening {
			continue
		}
		bound, err := filepath.EvalSymlinks(w[7])
		if w[7] == path || err == nil && bound == real {
			return true
		}
	}
	return false
}

// checkUser says what this user cannot see.
func (a *app) checkUser() finding {
	if os.Geteuid() == 0 {
		return finding{"user", good, "root", ""}
	}
	return finding{"user", warn, fmt.Sprintf("user %d, not root", os.Geteuid()), "some checks below need root"}
}

// checkPipe looks at the FIFOs by the rules of those who use them: ours alone,
// no access for group and others.
func (a *app) checkPipe() finding {
	const check = "pipe"
	for _, path := range []string{a.cfg.Pipe.Path, a.cfg.Pipe.AckPath} {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return finding{check, warn, path + " does not exist", "nri-watcher and resctrl-applier make it when they start"}
		case errors.Is(err, fs.ErrPermission):
			return finding{check, warn, path + ": no permission to look", "look as root"}
		case err != nil:
			return finding{check, fail, err.Error(), ""}
		}
		st, _ := info.Sys().(*syscall.Stat_t)
		refused := ""
		switch {
		case info.Mode().Type() != fs.ModeNamedPipe:
			refused = "is no FIFO"
		case info.Mode().Perm()&0o077 != 0:
			refused = fmt.Sprintf("may be used by others (mode %04o)", info.Mode().Perm())
		case st != nil && os.Geteuid() == 0 && st.Uid != 0:
			refused = fmt.Sprintf("belongs to user %d", st.Uid)
		default:
			continue
		}
		return finding{check, fail, path + " " + refused + ", so it is refused", "remove it; nri-watcher and resctrl-applier make it anew"}
	}
	return finding{check, good, a.cfg.Pipe.Path + ", " + a.cfg.Pipe.AckPath, ""}
}

// checkGroup looks for the group that may read state and event log.
func (a *app) checkGroup() finding {
	const check = "group"
	name := a.cfg.State.Group
	if name == "" {
		return finding{check, good, "only root may read state and event log (state.group is empty)", ""}
	}
	if _, err := user.LookupGroup(name); err != nil {
		return finding{check, fail, fmt.Sprintf("state.group %q: %v", name, err), "groupadd --system " + name + ", or correct the configuration; resctrl-applier does not start without it"}
	}
	return finding{check, good, name + " may read state and event log", ""}
}

// checkLog says whether the event log can be read.
func (a *app) checkLog(s *Status) finding {
	const check = "event log"
	path := a.cfg.Events.Path
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (s.Events == nil || s.Events.Exported == 0):
		return finding{check, good, path + " comes with the first event", ""}
	case errors.Is(err, fs.ErrNotExist):
		return finding{check, warn, path + " does not exist", "rotated away a moment ago? Else resctrl-applier makes it with the next event; journalctl -u resctrl-applier"}
	case err == nil && !info.Mode().IsRegular():
		return finding{check, fail, path + " is no regular file", "move it away, or change events.path"}
	case err == nil:
		var f *os.File
		if f, err = os.Open(path); err == nil {
			f.Close()
			return finding{check, good, path, ""}
		}
	}
	if errors.Is(err, fs.ErrPermission) {
		return finding{check, warn, path + ": no permission to read", "read as root, or as a member of state.group"}
	}
	return finding{check, fail, err.Error(), ""}
}
