package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The environment variable that lets the tests make cgroups and mounts on this
// machine. It is for a virtual machine.
const (
	envKernel = "NRI_RESCTRL_KERNEL"
	envHelper = "NRI_RESCTRL_TEST_HELPER"
)

func TestMain(m *testing.M) {
	if os.Getenv(envHelper) != "" {
		for range 20 {
			ready := make(chan bool)
			go func() {
				runtime.LockOSThread()
				close(ready)
				_ = unix.Pause()
			}()
			<-ready
		}
		fmt.Println("ready")
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	}
	os.Exit(m.Run())
}

// needKernel gives a cgroup root of the kernel's own: v2 as the guest has it, or
// a named hierarchy of v1.
func needKernel(t *testing.T, v1 bool) string {
	t.Helper()
	if os.Getenv(envKernel) == "" {
		t.Skipf("%s is not set: not run on this machine's own cgroups", envKernel)
	}
	if !v1 {
		return "/sys/fs/cgroup"
	}
	root := t.TempDir()
	dir := filepath.Join(root, "systemd")
	must(t, os.Mkdir(dir, 0o755))
	must(t, unix.Mount("cgroup", dir, "cgroup", 0, "none,name=systemd"))
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	return root
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// helper is a process with more than 20 threads.
func helper(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envHelper+"=1")
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_, err = bufio.NewReader(out).ReadString('\n')
	must(t, err)
	return cmd.Process.Pid
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	must(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() {
		for range 100 {
			if !errors.Is(unix.Rmdir(dir), unix.EBUSY) {
				return
			}
			<-time.After(20 * time.Millisecond) // the kernel is still ending its tasks
		}
	})
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0))
}

func threads(t *testing.T, pid int) []int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	must(t, err)
	var tids []int
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		must(t, err)
		tids = append(tids, tid)
	}
	slices.Sort(tids)
	return tids
}

func TestKernelTasks(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v1=%v", v1), func(t *testing.T) {
			root := needKernel(t, v1)
			below := root
			if v1 {
				below = filepath.Join(root, "systemd")
			}
			tree := New(root, "/proc")
			name := strings.Repeat("a1b2", 8)
			top := mkdir(t, filepath.Join(below, name))
			in := mkdir(t, filepath.Join(top, "in"))
			deep := mkdir(t, filepath.Join(in, "deep"))
			first, second := helper(t), helper(t)
			write(t, filepath.Join(top, "cgroup.procs"), strconv.Itoa(first))
			write(t, filepath.Join(deep, "cgroup.procs"), strconv.Itoa(second))

			want := slices.Concat(threads(t, first), threads(t, second))
			slices.Sort(want)
			path := strings.TrimPrefix(top, root)
			got, err := tree.Tasks(path)
			if !slices.Equal(got, want) || err != nil {
				t.Errorf("tasks %v, %v, want %v", got, err, want)
			}
			// The process went into a cgroup below: the container's is the one with its id.
			for _, ref := range []Ref{{PID: second, ID: name}, {PID: second, ID: name, CgroupsPath: "/" + name}, {CgroupsPath: "/" + name}} {
				if got, err := tree.Resolve(ref); got != path || err != nil {
					t.Errorf("%+v: %q, %v, want %q", ref, got, err, path)
				}
			}
			if got, err := tree.Resolve(Ref{PID: os.Getpid(), ID: name, CgroupsPath: "/none"}); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("of a process in the root: %q, %v", got, err)
			}
			ok, err := tree.ParentExists("/" + name + "/in")
			if !ok || err != nil {
				t.Errorf("ParentExists: %v, %v", ok, err)
			}
		})
	}
}

// TestKernelThreaded: a threaded cgroup refuses cgroup.procs (EOPNOTSUPP).
func TestKernelThreaded(t *testing.T) {
	root := needKernel(t, false)
	top := mkdir(t, filepath.Join(root, "threaded"))
	in := mkdir(t, filepath.Join(top, "in"))
	pid := helper(t)
	write(t, filepath.Join(top, "cgroup.procs"), strconv.Itoa(pid))
	write(t, filepath.Join(in, "cgroup.type"), "threaded")
	all := threads(t, pid)
	for _, tid := range all[1:6] {
		write(t, filepath.Join(in, "cgroup.threads"), strconv.Itoa(tid))
	}
	if _, err := os.ReadFile(filepath.Join(in, "cgroup.procs")); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("cgroup.procs of a threaded cgroup: %v", err)
	}
	tree := New(root, "/proc")
	if got, err := tree.Tasks("/threaded"); !slices.Equal(got, all) || err != nil {
		t.Errorf("%v, %v, want %v", got, err, all)
	}
	if got, err := tree.Tasks("/threaded/in"); !slices.Equal(got, sortedCopy(all[1:6])) || err != nil {
		t.Errorf("%v, %v, want %v", got, err, all[1:6])
	}
}

func sortedCopy(s []int) []int {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

// TestKernelVanishing: cgroups come and go during 500 walks.
func TestKernelVanishing(t *testing.T) {
	root := needKernel(t, false)
	top := mkdir(t, filepath.Join(root, "vanishing"))
	pid := helper(t)
	write(t, filepath.Join(top, "cgroup.procs"), strconv.Itoa(pid))
	want := threads(t, pid)
	stop, stopped := make(chan bool), make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				stopped <- n
				return
			default:
				dir := filepath.Join(top, "c")
				_ = os.Mkdir(dir, 0o755)
				_ = os.Mkdir(filepath.Join(dir, "d"), 0o755)
				_ = unix.Rmdir(filepath.Join(dir, "d"))
				_ = unix.Rmdir(dir)
			}
		}
	}()
	tree := New(root, "/proc")
	for range 500 {
		got, err := tree.Tasks("/vanishing")
		if !slices.Equal(got, want) || err != nil {
			t.Errorf("%v, %v, want %v", got, err, want)
			break
		}
	}
	close(stop)
	if n := <-stopped; n < 20 {
		t.Errorf("only %d cgroups came and went", n)
	}
	must(t, os.Mkdir(filepath.Join(top, "gone"), 0o755))
	must(t, unix.Rmdir(filepath.Join(top, "gone")))
	if _, err := tree.Tasks("/vanishing/gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of one that is gone: %v", err)
	}
}
