package pipeline

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
)

// TestPresentPods: two pods that were there before, one with a container that
// was created and not started, one with an exited one; found at a fresh start,
// and again after a restart of the applier, the watcher and the runtime.
func TestPresentPods(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a, b := n.pod("a"), n.pod("b")
	n.container(a, "run")
	made := n.create(a, "made")
	n.container(b, "run")
	gone := n.container(b, "gone")
	n.must(n.Runtime.StopContainer(gone)) // a runtime does not list it

	n.startApplier()
	n.startWatcher()
	n.last("a", "Exists 2/1")
	n.history("b", "Exists 0/0, Exists 1/1")
	n.must(n.Settled())
	dead := n.container(b, "dead")
	n.last("b", "Exists 2/2")
	n.must(n.Runtime.StopContainer(dead)) // stays counted until it is removed
	n.settle()
	n.last("b", "Exists 2/2")

	n.stop(n.Applier)
	n.startApplier()
	n.history("b", "Exists 0/0, Exists 1/1, Exists 2/1, Exists 2/2, Exists 2/2")
	n.last("a", "Exists 2/1")
	n.settle()

	n.stop(n.Watcher) // a new one is not told of what has exited
	n.startWatcher()
	n.snapshots(2)
	n.last("b", "Exists 1/1")
	n.last("a", "Exists 2/1")
	n.settle()

	n.must(n.Runtime.Restart())
	n.snapshots(3)
	n.settle()
	n.must(n.Runtime.StartContainer(made))
	n.last("a", "Exists 2/2")
	n.history("b", "Exists 0/0, Exists 1/1, Exists 2/1, Exists 2/2, Exists 2/2, Exists 1/1, Exists 1/1")
	n.must(n.Runtime.RemoveContainer(gone)) // nobody is told
	n.settle()
	if got := n.value("SELECT group_concat(name || ' ' || state, ', ') FROM (SELECT * FROM containers ORDER BY pod_uid, name)"); got != "made Reconciled, run Reconciled, run Reconciled" {
		t.Errorf("containers: %s", got)
	}
}

// TestContainerRestarted: the kubelet makes a new container in the place of
// one that died, and removes the dead one later.
func TestContainerRestarted(t *testing.T) {
	t.Parallel()
	n := running(t)
	pod := n.pod("u")
	first := n.container(pod, "app")
	n.last("u", "Exists 1/1")
	n.must(n.Runtime.StopContainer(first))
	n.container(pod, "app")
	n.last("u", "Exists 2/2")
	n.must(n.Runtime.RemoveContainer(first))
	n.history("u", "Exists 0/0, Exists 1/0, Exists 1/1, Exists 2/1, Exists 2/2, Exists 1/1")
	n.settle()
}

// TestLateAndDoubleEvents: a PostStart after the Stop revives nothing, and an
// update says nothing new.
func TestLateAndDoubleEvents(t *testing.T) {
	t.Parallel()
	n := running(t, rmids(2))
	pod, waits := n.pod("u"), n.pod("waits")
	c, w := n.create(pod, "app"), n.create(waits, "app")
	n.must(n.Runtime.StartQuietly(w))
	n.must(n.Runtime.StopContainer(w)) // never reconciled
	n.must(n.Runtime.PostStart(w))
	n.must(n.Runtime.StartQuietly(c))
	n.last("u", "Exists 1/1")
	n.must(n.Runtime.Update(c))
	n.must(n.Runtime.StopContainer(c))
	n.must(n.Runtime.PostStart(c))
	n.must(n.Runtime.Update(c))
	n.history("u", "Exists 0/0, Exists 1/0, Exists 1/1")
	n.settle()
	n.history("waits", "Failed capacity 0/0, Failed capacity 1/0")
	if got := n.value("SELECT group_concat(state) FROM containers"); got != "Exited,Exited" {
		t.Errorf("the containers are %s", got)
	}
	n.must(n.Runtime.RemovePod(pod))
	n.history("u", "Exists 0/0, Exists 1/0, Exists 1/1, Exists 0/0, Removed")
	n.settle()
}

// TestSandboxReplaced: an old sandbox is removed while the pod's new one runs:
// the group and the pod stay.
func TestSandboxReplaced(t *testing.T) {
	t.Parallel()
	n := running(t)
	old := n.pod("u")
	n.container(old, "app")
	n.last("u", "Exists 1/1")
	ino := n.inode(n.GroupPath("u"))
	fresh := n.pod("u")
	n.container(fresh, "app")
	n.last("u", "Exists 2/2")
	n.must(n.Runtime.RemovePod(old))
	n.history("u", "Exists 0/0, Exists 1/0, Exists 1/1, Exists 1/1, Exists 2/1, Exists 2/2, Exists 1/1")
	n.settle()
	if n.inode(n.GroupPath("u")) != ino {
		t.Error("the group is another one")
	}
	n.must(n.Runtime.RemovePod(fresh))
	n.last("u", "Exists 0/0, Removed")
	n.settle()
}

// TestManyThreads: a container with 50 threads is found at synchronize, and a
// pool that grows all the while.
func TestManyThreads(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	many, pool := n.pod("many"), n.pod("pool")
	c := n.container(many, "app", "threads", "50")
	g := n.container(pool, "app", "grow", "80", "2ms")
	n.startApplier()
	n.startWatcher()
	n.history("many", "Exists 0/0, Exists 1/1")
	n.inGroup(c, n.GroupPath("many"), 50)
	n.last("pool", "Exists 1/1")
	n.inGroup(g, n.GroupPath("pool"), 80)
	n.settle()
	if tasks, _ := strconv.Atoi(n.value("SELECT tasks FROM containers WHERE container_id = ?", c)); tasks < 50 {
		t.Errorf("the state knows of %d tasks", tasks)
	}
}

// TestNestedCgroups: a container may make cgroups below its own.
func TestNestedCgroups(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("u")
	c := n.container(pod, "app", "forks", "3")
	dir, err := n.Runtime.Cgroup(c)
	n.must(err)
	inner := filepath.Join(dir, "init.scope", "deep")
	n.must(n.Cgroups.AddCgroup(inner))
	procs, err := n.Cgroups.Procs(dir)
	n.must(err)
	if len(procs) != 4 {
		t.Fatalf("processes %v, want a parent and three children", procs)
	}
	for _, pid := range procs[1:3] {
		n.must(n.Cgroups.MoveProcess(inner, pid))
	}
	n.startApplier()
	n.startWatcher()
	n.history("u", "Exists 0/0, Exists 1/1")
	n.inGroup(c, n.GroupPath("u"), 4)
	n.settle()
}

// TestHostileUIDs: names that would leave the directory, collide, or break a
// line; each pod has a group of its own, directly where it belongs.
func TestHostileUIDs(t *testing.T) {
	t.Parallel()
	n := running(t)
	uids := []string{"", "..", ".", "../../etc", "/", "a/b", "a_b", "a b", "a\nb", "a%2Fb", strings.Repeat("x", 300),
		strings.Repeat("x", 301), "info", "mon_groups", "*", "-rf", "pod_a_b", "ü"}
	// With a NUL byte it is no text, and is not told of at all; nor does it
	// disturb the others.
	nul, err := n.Runtime.RunPod("nul", "ns", "A\x00B", nrirt.PodOptions{CgroupParent: "/kubepods/nul"})
	n.must(err)
	boxes := []string{nul}
	for i, uid := range uids {
		id, err := n.Runtime.RunPod("p"+strconv.Itoa(i), "ns", uid, nrirt.PodOptions{CgroupParent: "/kubepods/h" + strconv.Itoa(i)})
		n.must(err)
		boxes = append(boxes, id)
		n.container(id, "app")
	}
	n.settle()
	pods := n.value("SELECT count(*) || ' ' || count(DISTINCT group_path) || ' ' || sum(reconciled_containers) FROM pods WHERE group_state = 'Exists'")
	want := strconv.Itoa(len(uids))
	if pods != want+" "+want+" "+want {
		t.Errorf("pods, groups, containers: %s, want %s of each", pods, want)
	}
	if groups, err := n.Groups(); err != nil || len(groups) != len(uids) {
		t.Errorf("%d groups: %q, %v", len(groups), groups, err)
	}
	entries, err := os.ReadDir(n.Mount.Resctrl())
	n.must(err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "pod_") {
			t.Errorf("%q is a control group", e.Name())
		}
	}
	for _, id := range boxes {
		n.must(n.Runtime.RemovePod(id))
	}
	n.settle()
	if groups, err := n.Groups(); err != nil || len(groups) > 0 {
		t.Errorf("left: %q, %v", groups, err)
	}
	rows, err := n.Query("SELECT DISTINCT pod_uid FROM events WHERE type = 'Removed' AND pod_uid NOT LIKE 'marker%'")
	n.must(err)
	if len(rows) != len(uids) {
		t.Errorf("%d pods were removed, want %d: %q", len(rows), len(uids), rows)
	}
}
