package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
	"github.com/nri-resctrl/nri-resctrl/tests/sim/fusemount"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// rounds is how often job and applier meet: 1,000 with LONG=1, which takes
// minutes.
func rounds() int {
	if os.Getenv("LONG") == "1" {
		return 1000
	}
	return 60
}

// TestJobBesideApplier: in each round the job runs, as a process of its own,
// while pods come and go, more of them than there are RMIDs.
func TestJobBesideApplier(t *testing.T) {
	t.Parallel()
	n := running(t, noLimbo(), rmids(4), with("watcher.start_barrier", `"20ms"`))
	t.Logf("%d rounds", rounds())
	codes := map[int]int{}
	hands := []*hand{{n: n, name: "a"}, {n: n, name: "b"}}
	for range rounds() {
		var wg sync.WaitGroup
		for _, h := range hands {
			wg.Go(h.move)
		}
		r, err := n.Retry("--json")
		wg.Wait()
		if err != nil || r.Code != 0 && r.Code != 75 {
			t.Fatalf("the job ended with %d, %v: %s", r.Code, err, r.Err)
		}
		codes[r.Code]++
		for _, h := range hands {
			n.must(h.err)
		}
	}
	t.Logf("exit codes: %v", codes)
	n.settle()
	if n.value("SELECT count(*) FROM events WHERE source = 'resctrl-retry'") == "0" || len(codes) != 2 {
		t.Error("the job has always served, or never served, a pod")
	}
}

// hand makes pods come and go.
type hand struct {
	n      *node
	name   string
	serial int
	boxes  []string
	err    error
}

// move runs a pod with a container and, every other time, removes all of its
// pods but one.
func (h *hand) move() { h.err = errors.Join(h.err, h.come(), h.leave()) }

func (h *hand) come() error {
	h.serial++
	id, err := h.n.Runtime.RunPod(h.name, "ns", fmt.Sprintf("%s-%d", h.name, h.serial), nopts)
	if err != nil {
		return err
	}
	h.boxes = append(h.boxes, id)
	c, err := h.n.Runtime.CreateContainer(id, "app", nrirt.ContainerOptions{Workload: []string{"sleep"}})
	if err != nil {
		return err
	}
	return h.n.Runtime.StartContainer(c)
}

func (h *hand) leave() error {
	for h.serial%3 == 0 && len(h.boxes) > 1 {
		parent, err := h.n.Runtime.PodCgroup(h.boxes[0])
		if err != nil {
			return err
		}
		if err := h.n.Runtime.RemovePod(h.boxes[0]); err != nil {
			return err
		}
		if err := h.n.Runtime.RemovePodCgroup(parent); err != nil { // as the kubelet does
			return err
		}
		h.boxes = h.boxes[1:]
	}
	return nil
}

// waiting makes pods with a container each that have no RMID, and then RMIDs
// for all of them; each mkdir takes a while from then on.
func (n *node) waiting(count int, delay time.Duration) []string {
	n.t.Helper()
	var boxes []string
	for i := range count {
		id := n.pod(fmt.Sprintf("w%d", i))
		n.container(id, "app")
		boxes = append(boxes, id)
	}
	n.marker() // each event of a container tries its pod's group again
	n.Model.SetNumRMIDs(64)
	n.Mount.Faults.Add(fusemount.Fault{Op: "mkdir", Path: "pod_w", Delay: delay})
	return boxes
}

// jobUnderWay starts the job and waits until it has made its first group.
func (n *node) jobUnderWay() <-chan world.Result {
	n.t.Helper()
	done := make(chan world.Result, 1)
	go func() {
		r, err := n.Retry("--json")
		if err != nil {
			r.Err = err.Error()
		}
		done <- r
	}()
	n.until("the job has made a group", func() error {
		groups, err := n.Groups()
		if err == nil && len(groups) == 0 {
			err = fmt.Errorf("no group")
		}
		return err
	})
	return done
}

// TestPodRemovedDuringTheJob: what the job means to do next is gone by then.
func TestPodRemovedDuringTheJob(t *testing.T) {
	t.Parallel()
	n := running(t, noLimbo(), rmids(1))
	boxes := n.waiting(6, 50*time.Millisecond)
	done := n.jobUnderWay()
	n.must(n.Runtime.RemovePod(boxes[5]))
	n.must(n.Runtime.RemovePod(boxes[4]))
	if r := <-done; r.Code != 0 {
		t.Errorf("the job ended with %d: %s", r.Code, r.Err)
	}
	n.settle()
	for i := range 4 {
		n.last(fmt.Sprintf("w%d", i), "Exists 1/0, Exists 1/1")
	}
	for i := 4; i < 6; i++ {
		n.last(fmt.Sprintf("w%d", i), "Removed")
	}
	if groups, err := n.Groups(); err != nil || len(groups) != 4 {
		t.Errorf("groups %q, %v", groups, err)
	}
}

// TestStartDuringALongPass: a start meets its barrier while the job is in the
// middle of a pass: it gets its turn long before the pass is over, and the
// first process is in its group before it runs. How many are answered within
// the second that a barrier lasts at most is the machine's business; it is not
// parallel for that reason.
func TestStartDuringALongPass(t *testing.T) {
	n := running(t, noLimbo(), rmids(1))
	n.waiting(12, 30*time.Millisecond)
	before := n.barrier()
	done := n.jobUnderWay()
	outside := 0
	for i := range 3 {
		if !n.born(fmt.Sprintf("s%d", i)) {
			outside++
		}
	}
	if r := <-done; r.Code != 0 {
		t.Errorf("the job ended with %d: %s", r.Code, r.Err)
	}
	n.settle()
	first := n.value("SELECT min(seq) FROM events WHERE pod_uid = 's0' AND reconciled_containers = 1")
	if rest := n.value("SELECT count(*) FROM events WHERE source = 'resctrl-retry' AND seq > ?", first); rest == "0" {
		t.Error("the start waited for the end of the job's pass")
	}
	after := n.barrier()
	hits, misses := after.Hits-before.Hits, after.Misses-before.Misses+after.Skips-before.Skips
	if hits+misses != 3 || outside > misses {
		t.Errorf("%d programs began outside of their group; %d starts were waited for in vain or not at all, %d were not", outside, misses, hits)
	}
}

// born starts a container whose program first of all writes down who is in its
// pod's group, and says whether the program itself was.
func (n *node) born(uid string) bool {
	n.t.Helper()
	file := filepath.Join(n.Dir, "first-"+uid)
	box := n.pod(uid)
	c := n.create(box, "app", "first", file, filepath.Join(n.GroupPath(uid), "tasks"))
	n.must(n.Runtime.StartContainer(c))
	n.until("the program has run", func() error { return syscall.Access(file, 0) })
	text, err := os.ReadFile(file)
	n.must(err)
	pid, tasks, _ := strings.Cut(string(text), "\n")
	return strings.Contains("\n"+tasks, "\n"+pid+"\n")
}

// barrier counts container starts, as the watcher does.
type barrier struct {
	Time   time.Time
	Hits   int `json:"barrier_hits"`
	Misses int `json:"barrier_misses"`
	Skips  int `json:"barrier_skips"`
}

// barrier is what the next heartbeat says.
func (n *node) barrier() (b barrier) {
	n.t.Helper()
	begin := time.Now()
	n.until("a heartbeat came", func() error {
		text, err := n.Value("SELECT value FROM meta WHERE key = 'last_heartbeat'")
		if err == nil {
			err = json.Unmarshal([]byte(text), &b)
		}
		if err == nil && b.Time.Before(begin) {
			err = fmt.Errorf("the last is %s", text)
		}
		return err
	})
	return b
}

// TestStartBarrier: without a job beside it; and without an applier. Whether a
// start is answered in time is the machine's business; that one which was has
// its program in its group from the beginning is ours.
func TestStartBarrier(t *testing.T) {
	n := running(t)
	starts, outside := 0, 0
	for starts < 3 || n.barrier().Hits == 0 && starts < 30 {
		if !n.born(fmt.Sprintf("s%d", starts)) {
			outside++
		}
		starts++
	}
	n.Applier.Kill() // nobody to wait for: the container starts all the same
	n.logged(n.Watcher, "no longer reads the pipe", 1)
	n.container(n.pod("alone"), "app")
	n.startApplier()
	n.last("alone", "Exists 1/1")
	n.settle()
	w := n.barrier()
	if w.Hits == 0 || w.Hits+w.Misses+w.Skips != starts+1 || w.Skips == 0 || outside > w.Misses+w.Skips-1 {
		t.Errorf("%d of %d programs began outside of their group: %+v", outside, starts, w)
	}
}

// TestJobsSingleRetries: --pod, --container, and what is not there.
func TestJobsSingleRetries(t *testing.T) {
	t.Parallel()
	n := running(t, noLimbo(), rmids(1))
	n.waiting(2, 0)
	for args, want := range map[string]int{"--pod w0": 0, "--pod nobody": 66, "--container nothing": 66} {
		r, err := n.Retry(append(strings.Fields(args), "--json")...)
		n.must(err)
		if r.Code != want {
			t.Errorf("%s ended with %d, want %d: %s", args, r.Code, want, r.Err)
		}
	}
	n.history("w0", "Failed capacity 0/0, Failed capacity 1/0, Exists 1/0")
	r, err := n.Retry("--container", n.value("SELECT container_id FROM containers WHERE pod_uid = 'w0'"), "--json")
	n.must(err)
	if r.Code != 0 {
		t.Errorf("--container ended with %d: %s", r.Code, r.Err)
	}
	n.last("w0", "Exists 1/0, Exists 1/1")
	n.last("w1", "Failed capacity 1/0")
	n.Mount.Faults.Clear()
	n.Mount.Faults.Add(fusemount.Fault{Op: "mkdir", Path: "pod_w1", Errno: syscall.ENOSPC})
	r, err = n.Retry("--pod", "w1", "--json")
	n.must(err)
	if r.Code != 75 || !strings.Contains(strings.ToLower(r.Out), "capacity") {
		t.Errorf("without an RMID it ended with %d: %s%s", r.Code, r.Out, r.Err)
	}
	n.history("w1", "Failed capacity 0/0, Failed capacity 1/0")
	n.must(n.Settled())
}

// TestOneMkdirAfterACapacityError: the first one ends the group creations of
// the job's pass, and not the containers: those are completed all the same.
func TestOneMkdirAfterACapacityError(t *testing.T) {
	t.Parallel()
	n := running(t, noLimbo(), rmids(2))
	n.Mount.Faults.Add(fusemount.Fault{Op: "write", Path: "pod_partial", Errno: syscall.EIO})
	c := n.container(n.pod("partial"), "app", "threads", "4")
	n.waiting(3, 0)
	n.history("partial", "Exists 0/0, Exists 1/0")
	n.Mount.Faults.Clear()
	// The second mkdir of the pass would have its group.
	n.Mount.Faults.Add(fusemount.Fault{Op: "mkdir", Errno: syscall.ENOSPC, Times: 1})
	n.job(75)
	n.history("partial", "Exists 0/0, Exists 1/0, Exists 1/1")
	n.inGroup(c, n.GroupPath("partial"), 4)
	if groups, err := n.Groups(); err != nil || len(groups) != 1 {
		t.Errorf("groups %q, %v", groups, err)
	}
	n.job(0)
	n.last("w2", "Failed capacity 1/0, Exists 1/0, Exists 1/1")
	n.settle()
}
