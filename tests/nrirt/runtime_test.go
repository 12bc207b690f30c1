package nrirt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
)

func TestLifeWithoutProcesses(t *testing.T) {
	t.Parallel()
	cg := NewMemoryCgroups()
	r := newRuntime(t, Options{Cgroups: cg})
	p := &recorder{}
	p.connect(t, r.opts.SocketPath)
	p.wantSync(t)

	pod, err := r.RunPod("web", "shop", "u1", PodOptions{PID: 7})
	must(t, err)
	c, err := r.CreateContainer(pod, "app", ContainerOptions{PID: 100})
	must(t, err)
	never, err := r.CreateContainer(pod, "never", ContainerOptions{PID: 101})
	must(t, err)
	must(t, r.StartContainer(c))
	dir, err := r.Cgroup(c)
	must(t, err)
	if pids, _ := cg.Processes(dir); dir != "/kubepods/burstable/podu1/"+c || !slices.Equal(pids, []int{100}) {
		t.Errorf("cgroup %s holds %v", dir, pids)
	}
	if _, ok := cg.Processes("/kubepods/burstable/podu1/" + never); ok {
		t.Error("a container that was never started has a cgroup")
	}
	must(t, r.Update(c))
	must(t, r.StopContainer(c))
	must(t, r.StopContainer(c))
	if _, ok := cg.Processes(dir); ok {
		t.Error("a stopped container keeps its cgroup")
	}
	must(t, r.RemoveContainer(c))
	must(t, r.RemovePod(pod))
	if _, ok := cg.Processes("/kubepods/burstable/podu1"); !ok {
		t.Error("the pod's cgroup went with the sandbox")
	}
	p.want(t, "run web 7", "created web/app CREATED 0", "created web/never CREATED 0",
		"start web/app CREATED 100", "started web/app RUNNING 100", "updated web/app RUNNING 100",
		"stop web/app STOPPED 100", "remove web/app UNKNOWN 0",
		"stop web/never CREATED 0", "stop web 0", "remove web/never UNKNOWN 0", "remove web 0")
}

func TestRestartForgetsWhatContainerdForgets(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	old, err := r.RunPod("old", "ns", "u1", PodOptions{PID: 7})
	must(t, err)
	gone, err := r.RunPod("gone", "ns", "u2", PodOptions{PID: 8})
	must(t, err)
	must(t, r.StopPod(gone))
	ids := map[string]string{}
	for i, name := range []string{"created", "running", "exited", "dies"} {
		ids[name], err = r.CreateContainer(old, name, ContainerOptions{PID: 100 + i})
		must(t, err)
		if name != "created" {
			must(t, r.StartContainer(ids[name]))
		}
	}
	must(t, r.StopContainer(ids["exited"]))

	p := &recorder{}
	p.connect(t, r.opts.SocketPath)
	p.wantSync(t, "created CONTAINER_CREATED 0", "dies CONTAINER_RUNNING 103", "gone 0", "old 7", "running CONTAINER_RUNNING 101")
	r.Down()
	<-p.closed
	if _, err := r.RunPod("x", "ns", "u3", PodOptions{}); !errors.Is(err, ErrDown) {
		t.Errorf("a pod was run on a runtime that is down: %v", err)
	}
	if _, err := os.Stat(r.opts.SocketPath); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is there: %v", err)
	}
	must(t, r.Kill(ids["dies"]))
	must(t, r.Up())
	p.connect(t, r.opts.SocketPath)
	p.wantSync(t, "created CONTAINER_CREATED 0", "gone 0", "old 7", "running CONTAINER_RUNNING 101")

	fresh, err := r.RunPod("fresh", "ns", "u4", PodOptions{})
	must(t, err)
	must(t, r.RemovePod(old))
	must(t, r.RemovePod(gone))
	must(t, r.RemovePod(fresh))
	p.want(t, "run fresh 0", "stop old/created CREATED 0", "stop old/running STOPPED 101",
		"remove old/created UNKNOWN 0", "remove old/running UNKNOWN 0", "stop fresh 0", "remove fresh 0")
}

func TestLatePostStart(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	p := &recorder{}
	p.connect(t, r.opts.SocketPath)
	p.wantSync(t)
	pod, err := r.RunPod("web", "ns", "u1", PodOptions{})
	must(t, err)
	c, err := r.CreateContainer(pod, "app", ContainerOptions{PID: 9})
	must(t, err)
	must(t, r.StartQuietly(c))
	must(t, r.StopContainer(c))
	must(t, r.PostStart(c))
	p.want(t, "run web 0", "created web/app CREATED 0", "start web/app CREATED 9", "stop web/app STOPPED 9", "started web/app RUNNING 9")
}

func TestGateHoldsTheProgramUntilTheCallbackReturned(t *testing.T) {
	t.Parallel()
	cg := NewMemoryCgroups()
	r := newRuntime(t, Options{Cgroups: cg})
	mark := filepath.Join(t.TempDir(), "first")
	source := filepath.Join(t.TempDir(), "source")
	p := &recorder{start: func(c *api.Container) {
		pids, _ := cg.Processes(c.Linux.CgroupsPath)
		if !slices.Equal(pids, []int{int(c.Pid)}) {
			t.Errorf("at its start the cgroup holds %v, not %d", pids, c.Pid)
		}
		// A program that was let go would have run in the time of three others.
		for range 3 {
			other, err := startProcess([]string{"exit"}, false, nil)
			if err != nil {
				t.Error(err)
				return
			}
			<-other.exited
		}
		if _, err := os.Stat(mark); err == nil {
			t.Error("the program ran before StartContainer had returned")
		}
		// What the program reads first is what the callback left.
		if err := os.WriteFile(source, []byte("the callback was here"), 0o600); err != nil {
			t.Error(err)
		}
	}}
	p.connect(t, r.opts.SocketPath)
	p.wantSync(t)
	pod, err := r.RunPod("web", "ns", "u1", PodOptions{Pause: true})
	must(t, err)
	c, err := r.CreateContainer(pod, "app", ContainerOptions{Workload: []string{"first", mark, source}})
	must(t, err)
	must(t, r.StartContainer(c))
	must(t, r.Ready(within(t), c))
	text, err := os.ReadFile(mark)
	must(t, err)
	if want := fmt.Sprintf("%d\nthe callback was here", r.PID(c)); string(text) != want {
		t.Errorf("the program's first act wrote %q, want %q", text, want)
	}
}

func TestProcessesAreRealAndEnd(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	pod, err := r.RunPod("web", "ns", "u1", PodOptions{Pause: true})
	must(t, err)
	start := func(name string, workload ...string) string {
		id, err := r.CreateContainer(pod, name, ContainerOptions{Workload: workload})
		must(t, err)
		must(t, r.StartContainer(id))
		must(t, r.Ready(within(t), id))
		return id
	}
	many := start("many", "threads", "50")
	forks := start("forks", "forks", "3")
	grow := start("grow", "grow", "20", "1ms")
	over := start("over", "exit", "3")
	if code, err := r.Wait(within(t), over); code != 3 || err != nil {
		t.Errorf("it ended with %d, %v", code, err)
	}
	if n := len(entries(t, r.PID(many), "task")); n < 50 {
		t.Errorf("%d threads, want 50", n)
	}
	children := childrenOf(t, r.PID(forks))
	if len(children) != 3 {
		t.Errorf("%d children, want 3", len(children))
	}
	must(t, WaitFor(within(t), "the pool has grown", func() bool { return len(entries(t, r.PID(grow), "task")) >= 20 }))
	stray, err := r.Exec(within(t), many, "threads", "5")
	must(t, err)
	if !childOfUs(t, stray) {
		t.Error("the exec'd process is not a child of the runtime")
	}

	pids := append(children, r.PID(many), r.PID(forks), r.PID(grow), stray)
	must(t, r.RemovePod(pod))
	for _, pid := range pids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			t.Errorf("process %d is left behind", pid)
		}
	}
}

func TestCloseEndsProcesses(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	p := &recorder{}
	p.connect(t, r.opts.SocketPath)
	p.wantSync(t)
	pod, err := r.RunPod("web", "ns", "u1", PodOptions{Pause: true})
	must(t, err)
	gated, err := r.CreateContainer(pod, "gated", ContainerOptions{Workload: []string{"sleep"}})
	must(t, err)
	// The start fails: the process stays at its gate.
	r.SetHook(func(context.Context, string) error { return errors.New("refused by the test") })
	if err := r.StartContainer(gated); err == nil {
		t.Fatal("a plugin's error did not fail the start")
	}
	pid := r.PID(gated)
	must(t, r.Close())
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		t.Errorf("process %d is left behind", pid)
	}
}

func TestHookCutsAndHolds(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	p := &recorder{}
	p.connect(t, r.opts.SocketPath)
	p.wantSync(t)
	r.SetHook(func(_ context.Context, method string) error {
		if method == "RunPodSandbox" {
			return ErrCut
		}
		return nil
	})
	_, err := r.RunPod("web", "ns", "u1", PodOptions{})
	must(t, err)
	<-p.closed
	must(t, WaitFor(within(t), "no connection is left", func() bool { return r.Connections() == 0 }))
	if r.Accepted() != 1 {
		t.Errorf("%d connections were accepted", r.Accepted())
	}
}

func TestCgroupNames(t *testing.T) {
	t.Parallel()
	tests := []struct {
		systemd    bool
		parent     string
		named, dir string
	}{
		{false, "/kubepods/podx", "/kubepods/podx/c1", "/kubepods/podx/c1"},
		{true, "kubepods-burstable-podx.slice", "kubepods-burstable-podx.slice:cri-containerd:c1",
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podx.slice/cri-containerd-c1.scope"},
	}
	for _, tt := range tests {
		named, dir := cgroupPaths(tt.systemd, tt.parent, "c1")
		if named != tt.named || dir != tt.dir {
			t.Errorf("%s: %s and %s, want %s and %s", tt.parent, named, dir, tt.named, tt.dir)
		}
	}
}

func entries(t *testing.T, pid int, dir string) []os.DirEntry {
	t.Helper()
	es, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", pid, dir))
	must(t, err)
	return es
}

func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	var all []int
	for _, e := range entries(t, pid, "task") {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, e.Name()))
		must(t, err)
		for _, f := range strings.Fields(string(text)) {
			n, err := strconv.Atoi(f)
			must(t, err)
			all = append(all, n)
		}
	}
	return all
}

func childOfUs(t *testing.T, pid int) bool {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	_, after, _ := strings.Cut(string(text), ") ")
	return strings.Fields(after)[1] == strconv.Itoa(os.Getpid())
}

func TestDiedWhileTheRuntimeWasDown(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	pod, err := r.RunPod("web", "ns", "u1", PodOptions{})
	must(t, err)
	c, err := r.CreateContainer(pod, "app", ContainerOptions{Workload: []string{"exit", "0"}})
	must(t, err)
	must(t, r.StartContainer(c))
	r.Down()
	_, err = r.Wait(within(t), c)
	must(t, err)
	must(t, r.Up())
	p := &recorder{}
	p.connect(t, r.opts.SocketPath)
	p.wantSync(t, "web 0")
	must(t, r.RemoveContainer(c))
	if told := p.take(); len(told) != 0 {
		t.Errorf("told: %q", told)
	}
}
