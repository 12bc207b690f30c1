package kernel_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/fusemount"
)

// callFace makes the real system calls: on the simulator's mount, or on the
// kernel's own resctrl.
type callFace struct {
	root, proc string
	mountFn    func() error
	unmountFn  func() error
	passFn     func(time.Duration)
}

// errno strips what os adds.
func errno(err error) error {
	var e syscall.Errno
	if errors.As(err, &e) {
		return e
	}
	return err
}

func (f *callFace) path(p string) string { return f.root + "/" + p }

func (f *callFace) mkdir(p string, perm uint32) error {
	return errno(unix.Mkdir(f.path(p), perm))
}
func (f *callFace) rmdir(p string) error {
	return errno(unix.Rmdir(strings.TrimSuffix(f.path(p), "/")))
}
func (f *callFace) unlink(p string) error { return errno(unix.Unlink(f.path(p))) }

func (f *callFace) symlink(target, p string) error { return errno(unix.Symlink(target, f.path(p))) }

func (f *callFace) create(p string) error {
	fd, err := unix.Open(f.path(p), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err == nil {
		unix.Close(fd)
	}
	return errno(err)
}

func (f *callFace) rename(from, to string) error {
	return errno(unix.Rename(f.path(from), f.path(to)))
}

func (f *callFace) chmod(p string, perm uint32) error { return errno(unix.Chmod(f.path(p), perm)) }

func (f *callFace) chown(p string, uid uint32) error {
	return errno(unix.Chown(f.path(p), int(uid), -1))
}

func (f *callFace) stat(p string) (info, error) {
	var st unix.Stat_t
	if err := unix.Lstat(f.path(p), &st); err != nil {
		return info{}, errno(err)
	}
	return info{dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, perm: st.Mode & 0o7777, ino: st.Ino, size: st.Size, uid: st.Uid}, nil
}

func (f *callFace) list(p string) ([]string, error) {
	entries, err := os.ReadDir(f.path(p))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, errno(err)
}

func (f *callFace) open(p string, flags int) (file, error) {
	fd, err := unix.Open(f.path(p), flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errno(err)
	}
	return descriptor(fd), nil
}

func (f *callFace) group(tid int) (string, error) {
	data, err := os.ReadFile(filepath.Join(f.proc, strconv.Itoa(tid), "cpu_resctrl_groups"))
	return string(data), errno(err)
}

func (f *callFace) lock(p string) (func(), error) {
	fd, err := unix.Open(f.path(p), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errno(err)
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(fd)
		return nil, errno(err)
	}
	return func() { unix.Close(fd) }, nil
}

func (f *callFace) mount() error         { return errno(f.mountFn()) }
func (f *callFace) unmount() error       { return errno(f.unmountFn()) }
func (f *callFace) pass(d time.Duration) { f.passFn(d) }

type descriptor int

func (d descriptor) read(n int) (string, error) {
	buf := make([]byte, n)
	got, err := unix.Read(int(d), buf)
	return string(buf[:max(got, 0)]), errno(err)
}

func (d descriptor) pread(n int, at int64) (string, error) {
	buf := make([]byte, n)
	got, err := unix.Pread(int(d), buf, at)
	return string(buf[:max(got, 0)]), errno(err)
}

func (d descriptor) write(data string) error {
	n, err := unix.Write(int(d), []byte(data))
	if err == nil && n != len(data) {
		return fmt.Errorf("wrote %d of %d bytes", n, len(data))
	}
	return errno(err)
}

func (d descriptor) close() { unix.Close(int(d)) }

func fuseWorld(t *testing.T, e env, cfg sim.Config) *world {
	source, clock := sim.NewProcSource("/proc", false), sim.NewManualClock()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // for startAs
		t.Fatal(err)
	}
	m, err := fusemount.New(filepath.Join(dir, "node"), fusemount.Options{
		Model: sim.New(cfg, clock, source), Cgroups: sim.NewCgroups(source), Source: source, HostProc: "/proc",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Unmount(); err != nil {
			t.Error(err)
		}
	})
	f := &callFace{root: m.Resctrl(), proc: m.Proc(), mountFn: m.Model.Mount, unmountFn: m.UnmountResctrl, passFn: clock.Advance}
	return &world{t: t, env: e, face: f, tasks: &real{t: t, root: f.root, started: func(pid int) { source.Track(pid) }}}
}

const kernelRoot = "/sys/fs/resctrl"

// envWords says that the guest's RMIDs 2 and 3 have unreadable counters.
const envWords = "NRI_RESCTRL_WORDS"

// envEvicts says that the emulated cache takes seconds to forget a group.
const envEvicts = "NRI_RESCTRL_EVICTS"

// kernelEnv finds out what this guest is.
func kernelEnv(t *testing.T) env {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	e := env{face: "kernel", v61: strings.HasPrefix(unix.ByteSliceToString(uts.Release[:]), "6.1.")}
	number := func(path string) int {
		data, _ := os.ReadFile(filepath.Join(kernelRoot, path))
		n, _ := strconv.Atoi(strings.TrimSpace(string(data)))
		return n
	}
	e.rmids, e.closids = number("info/L3_MON/num_rmids"), number("info/L3/num_closids")
	e.monitoring, e.allocation = e.rmids > 0, e.closids > 0
	e.words, e.evicts = os.Getenv(envWords) != "", os.Getenv(envEvicts) != ""
	e.cpus = runtime.NumCPU()
	sockets := map[string]bool{}
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if key, value, _ := strings.Cut(s.Text(), ":"); strings.TrimSpace(key) == "physical id" {
			sockets[value] = true
		}
	}
	e.domains = len(sockets)
	return e
}

// resting is the kernel's resctrl, where the RMIDs of earlier cases may still
// be in limbo.
type resting struct {
	*callFace
	made *int // groups since the last rest
}

func (f resting) mkdir(path string, perm uint32) error {
	err := f.callFace.mkdir(path, perm)
	if err == nil {
		*f.made++
	}
	return err
}

// limboTime is longer than 6.12 keeps an RMID, which it looks at every second.
const limboTime = 2200 * time.Millisecond

// atHand are the RMIDs that a case may use without asking.
const atHand = 5

// kernelWorld uses the one resctrl of the guest, and leaves it as it was.
func kernelWorld(t *testing.T, e env, made *int) *world {
	if e.monitoring && *made+atHand > e.rmids-1 {
		time.Sleep(limboTime)
		*made = 0
	}
	f := &callFace{
		root: kernelRoot, proc: "/proc", passFn: time.Sleep,
		mountFn:   func() error { return unix.Mount("resctrl", kernelRoot, "resctrl", 0, "") },
		unmountFn: func() error { return unix.Unmount(kernelRoot, 0) },
	}
	t.Cleanup(func() { // after the processes ended
		for _, dir := range []string{"mon_groups", ""} {
			names, _ := f.list(dir)
			for _, name := range names {
				if name != "info" && name != "mon_groups" && name != "mon_data" {
					_ = f.rmdir(in(dir, name))
				}
			}
		}
	})
	return &world{t: t, env: e, face: resting{f, made}, tasks: &real{t: t, root: f.root}}
}

// real makes processes.
type real struct {
	t       *testing.T
	root    string
	started func(pid int) // may be nil
}

func (r *real) start() process { return r.startAs(uint32(os.Getuid())) }

func (r *real) startAs(uid uint32) process { return r.launch(uid, 0) }

func (r *real) startApart() process { return r.launch(uint32(os.Getuid()), unix.CLONE_NEWPID) }

func (r *real) launch(uid uint32, namespaces uintptr) process {
	p := &realProcess{root: r.root, cmd: exec.Command(os.Args[0])}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	p.cmd.Env = append(os.Environ(), envRole+"=worker")
	var err error
	if p.in, err = p.cmd.StdinPipe(); err == nil {
		out, perr := p.cmd.StdoutPipe()
		p.out, err = bufio.NewScanner(out), perr
	}
	p.cmd.Stderr = os.Stderr
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		p.in.Close() // it ends its children, then itself
		_ = p.cmd.Wait()
	})
	p.do("up")
	if uid != uint32(os.Getuid()) { // not before: the test binary is in a directory of root's
		if answer := p.do("setuid %d", uid); answer != "0" {
			r.t.Fatalf("setuid: error %s", answer)
		}
	}
	if r.started != nil {
		r.started(p.pid())
	}
	return p
}
