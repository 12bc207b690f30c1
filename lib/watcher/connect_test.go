package watcher

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
)

func TestSnapshotThenEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.runtime()
	old, _ := pod(t, r, "old", "app", "side")
	w := b.run()

	s := b.out.snapshot(t)
	if s.begin.Runtime != "containerd" || s.begin.RuntimeVersion != "v2.4.2" || s.begin.Node != "node-1" {
		t.Errorf("begin: %+v", s.begin)
	}
	want := lifecycle.Pod{ID: old, UID: "uid-old", Name: "old", Namespace: "ns", CgroupParent: "/kubepods/burstable/poduid-old", PID: 50}
	if s.pods["old"] != want || len(s.pods) != 1 {
		t.Errorf("pods %+v, want %+v", s.pods, want)
	}
	if c := s.containers["side"]; len(s.containers) != 2 || c.State != lifecycle.ContainerRunning || c.PID != 101 ||
		c.PodSandboxID != old || c.CgroupsPath != "/kubepods/burstable/poduid-old/"+c.ID {
		t.Errorf("containers %+v", s.containers)
	}

	sandbox, ids := pod(t, r, "new", "app")
	must(t, r.Update(ids[0]))
	must(t, r.StopContainer(ids[0]))
	must(t, r.RemovePod(sandbox))
	recs := b.out.want(t, lifecycle.RunPodSandbox, lifecycle.PostCreateContainer, lifecycle.StartContainer,
		lifecycle.PostStartContainer, lifecycle.PostUpdateContainer, lifecycle.StopContainer,
		lifecycle.StopPodSandbox, lifecycle.RemoveContainer, lifecycle.RemovePodSandbox)
	for i, rec := range recs {
		if rec.Epoch != s.begin.Epoch || rec.Seq != uint64(6+i) || rec.Pod.UID != "uid-new" {
			t.Errorf("record %d: %+v", i, rec)
		}
	}
	if st := configured(t, w).pump.state().Barrier; st.Skips != 1 || st.Misses != 0 {
		t.Errorf("nobody acknowledges on standard output, still a start waited: %+v", st)
	}
	start := recs[2].Container
	if start.State != lifecycle.ContainerCreated || start.PID != 100 || start.ID != ids[0] {
		t.Errorf("at its start: %+v", start)
	}
}

func TestUpBeforeItsRuntime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.opts.Config.Watcher.Heartbeat.Duration = time.Millisecond
	b.run()
	// Several heartbeats and attempts on, nothing was told but heartbeats.
	for range 20 {
		if rec := b.out.any(t); rec.Event != lifecycle.Heartbeat || rec.RuntimeState != "disconnected" {
			t.Fatalf("without a runtime: %+v", rec)
		}
	}
	if n := b.log.count("the NRI socket is not there"); n != 1 {
		t.Errorf("that the socket is absent was said %d times", n)
	}

	r, err := nrirt.New(nrirt.Options{SocketPath: b.opts.Config.Watcher.NRISocket})
	must(t, err)
	defer r.Close()
	pod(t, r, "web", "app")
	// The runtime may have synchronized before the pod was run; then it
	// follows as an event.
	if s := b.out.snapshot(t); len(s.pods) == 0 {
		b.out.want(t, lifecycle.RunPodSandbox)
	}
	eventually(t, "it is said", func() bool { return b.log.count("synchronized with the runtime") > 0 })
	if n := b.log.count("synchronized with the runtime"); n != 1 {
		t.Errorf("that it is connected was said %d times", n)
	}
}

func TestRuntimeRestarts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.runtime()
	_, ids := pod(t, r, "web", "app", "gone")
	b.run()
	first := b.out.snapshot(t)
	r.Down()
	must(t, r.Kill(ids[1]))
	for {
		if rec := b.out.any(t); rec.Event == lifecycle.RuntimeLost {
			if rec.RuntimeState != "disconnected" {
				t.Errorf("%+v", rec)
			}
			break
		}
	}
	must(t, r.Up())
	second := b.out.snapshot(t)
	if second.begin.Epoch == first.begin.Epoch || len(second.pods) != 1 || len(second.containers) != 1 {
		t.Errorf("after the restart: %+v", second)
	}
	pod(t, r, "new")
	b.out.want(t, lifecycle.RunPodSandbox)
}

func TestDroppedInTheHandshake(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"RegisterPlugin", "Configure", "Synchronize"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			r := b.runtime()
			pod(t, r, "web")
			hook, calls := once(method, func(context.Context) error { return nrirt.ErrCut })
			r.SetHook(hook)
			b.run()
			if s := b.out.snapshot(t); len(s.pods) != 1 {
				t.Errorf("%+v", s)
			}
			if calls() != 2 {
				t.Errorf("%s was called %d times", method, calls())
			}
		})
	}
}

func TestManyPods(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.runtime()
	for i := range 50 {
		pod(t, r, fmt.Sprint("pod", i), fmt.Sprint("a", i), fmt.Sprint("b", i))
	}
	b.run()
	if s := b.out.snapshot(t); len(s.pods) != 50 || len(s.containers) != 100 {
		t.Errorf("%d pods, %d containers", len(s.pods), len(s.containers))
	}
}

// TestOldHandlerOutlivesItsConnection has a handler of a closed connection
// speak after the next one has synchronized.
func TestOldHandlerOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held, release := make(chan struct{}), make(chan struct{})
	hold := sync.OnceFunc(func() { close(held); <-release })
	done := make(chan struct{}, 1)
	b.opts.onEvent = func(e lifecycle.Event) {
		if e == lifecycle.RemovePodSandbox {
			hold()
			done <- struct{}{}
		}
	}
	r := b.runtime()
	old, _ := pod(t, r, "old")
	b.run()
	b.out.snapshot(t)

	removed := make(chan error, 1)
	go func() { removed <- r.RemovePod(old) }()
	<-held
	r.CutConnections()
	must(t, <-removed)
	b.out.want(t, lifecycle.StopPodSandbox)
	s := b.out.snapshot(t)
	if len(s.pods) != 0 {
		t.Errorf("%+v", s)
	}
	close(release)
	<-done
	pod(t, r, "new")
	if rec := b.out.next(t); rec.Event != lifecycle.RunPodSandbox {
		t.Errorf("an old connection's handler was heard: %+v", rec)
	}
}

func TestPanicInAHandler(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	boom := sync.OnceFunc(func() { panic("boom") })
	b.opts.onEvent = func(e lifecycle.Event) {
		if e == lifecycle.RunPodSandbox {
			boom()
		}
	}
	r := b.runtime()
	b.run()
	b.out.snapshot(t)
	pod(t, r, "web") // fails the test if the runtime gets an error
	// What was not told comes with the next snapshot.
	if s := b.out.snapshot(t); len(s.pods) != 1 {
		t.Errorf("%+v", s)
	}
	if b.log.count("a handler of the runtime's events failed") != 1 {
		t.Error("the panic was not logged")
	}
}

func TestSecretsAreNotTold(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.runtime()
	const secret = "s3cret"
	opts := nrirt.ContainerOptions{PID: 1, Env: []string{"TOKEN=" + secret}, Args: []string{"--key", secret},
		Labels: map[string]string{"l": secret}, Annotations: map[string]string{"a": secret}}
	run := func(name string) {
		p, err := r.RunPod(name, "ns", name, nrirt.PodOptions{Labels: opts.Labels, Annotations: opts.Annotations})
		must(t, err)
		c, err := r.CreateContainer(p, "app", opts)
		must(t, err)
		must(t, r.StartContainer(c))
		must(t, r.Update(c))
	}
	run("before")
	b.run()
	b.out.snapshot(t)
	run("after")
	b.out.want(t, lifecycle.RunPodSandbox, lifecycle.PostCreateContainer, lifecycle.StartContainer,
		lifecycle.PostStartContainer, lifecycle.PostUpdateContainer)
	if strings.Contains(b.out.text(), secret) {
		t.Errorf("a secret was told:\n%s", b.out.text())
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.opts.Config.Watcher.Namespaces = []string{"shop", "bank"}
	b.opts.Config.Watcher.LabelSelector = map[string]string{"tier": "front"}
	r := b.runtime()
	front := map[string]string{"tier": "front", "x": "y"}
	run := func(name, ns string, labels map[string]string) {
		p, err := r.RunPod(name, ns, "", nrirt.PodOptions{Labels: labels})
		must(t, err)
		c, err := r.CreateContainer(p, "c-"+name, nrirt.ContainerOptions{PID: 1})
		must(t, err)
		must(t, r.StartContainer(c))
		must(t, r.RemoveContainer(c))
		if name == "yes" || name == "not" {
			_, err := r.CreateContainer(p, "d-"+name, nrirt.ContainerOptions{})
			must(t, err)
		}
	}
	run("yes", "shop", front)
	run("not", "other", front)
	b.run()
	s := b.out.snapshot(t)
	if len(s.pods) != 1 || len(s.containers) != 1 || s.containers["d-yes"].State != lifecycle.ContainerCreated {
		t.Errorf("%+v", s)
	}
	if p := s.pods["yes"]; p.UID != p.ID || p.UID == "" {
		t.Errorf("the sandbox's id does not stand in for the uid: %+v", p)
	}
	run("no1", "other", front)
	run("no2", "bank", map[string]string{"tier": "back"})
	run("no3", "bank", nil)
	run("yes2", "bank", front)
	for _, rec := range b.out.want(t, lifecycle.RunPodSandbox, lifecycle.PostCreateContainer, lifecycle.StartContainer,
		lifecycle.PostStartContainer, lifecycle.StopContainer, lifecycle.RemoveContainer) {
		if rec.Pod.Name != "yes2" {
			t.Errorf("told: %+v", rec.Pod)
		}
	}
}

func TestSecondWatcherNamesTheFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.opts.Stdout = nil
	b.run()
	lock := b.dir + "/run/watcher.lock"
	eventually(t, "the lock is held", func() bool { text, _ := os.ReadFile(lock); return len(text) > 0 })
	err := New(b.opts).Run(t.Context())
	var coded interface{ ExitCode() int }
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s is held by process %d", lock, os.Getpid())) {
		t.Errorf("the second ended with %v", err)
	}
	if c, ok := err.(interface{ ExitCode() int }); !ok || c.ExitCode() != 69 {
		t.Errorf("%T %v", err, coded)
	}
}
