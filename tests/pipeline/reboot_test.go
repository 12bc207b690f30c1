package pipeline

import (
	"strings"
	"testing"
)

// TestReboot: the machine starts again with the old database: groups and
// processes are gone, some pods come back and some do not. The job waits for
// the first snapshot of this boot.
func TestReboot(t *testing.T) {
	t.Parallel()
	n := running(t)
	back, lost := n.pod("back"), n.pod("lost")
	old := n.container(back, "app")
	n.container(lost, "app")
	n.last("back", "Exists 1/1")
	n.last("lost", "Exists 1/1")
	n.stop(n.Applier)
	n.stop(n.Watcher)

	n.must(n.Runtime.StopContainer(old))
	parent, err := n.Runtime.PodCgroup(lost)
	n.must(err)
	n.must(n.Runtime.RemovePod(lost))
	n.must(n.Runtime.RemovePodCgroup(parent))
	n.Runtime.Down()
	n.must(n.Mount.UnmountResctrl())
	n.must(n.Model.Mount())
	n.Mount.SetBootID("22222222-2222-4222-8222-222222222222")

	r := n.job(0)
	if !strings.Contains(r.Out, "waiting") {
		t.Errorf("the job does not say what it waits for:\n%s", r.Out)
	}
	if groups, err := n.Groups(); err != nil || len(groups) > 0 {
		t.Errorf("the job made %q, %v", groups, err)
	}
	n.startApplier()
	n.startWatcher()
	n.logged(n.Applier, "asking for a new snapshot", 1)
	n.job(0)
	n.history("lost", "Exists 0/0, Exists 1/0, Exists 1/1")
	if s, err := n.Ctl("status"); err != nil || !strings.Contains(s.Out, "before this boot") {
		t.Errorf("status does not tell of the boot: %v\n%s", err, s.Out)
	}

	n.must(n.Runtime.Up())
	n.last("lost", "Exists 1/1, Removed")
	n.last("back", "Exists 0/0") // its exited container is not listed
	n.container(back, "app")
	n.last("back", "Exists 0/0, Exists 1/0, Exists 1/1")
	n.settle()
	n.job(0)
	n.settle()
}

// TestCleanupOnStart: groups of ours that no pod has are removed at the first
// snapshot; nobody else's, and none inside another group's mon_groups.
func TestCleanupOnStart(t *testing.T) {
	t.Parallel()
	for _, on := range []string{"true", "false"} {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, with("resctrl.cleanup_on_start", on))
			c := n.container(n.pod("u"), "app")
			made := []string{"mon_groups/pod_u", "mon_groups/pod_stray", "mon_groups/other", "pod_control", "gold",
				"gold/mon_groups/pod_theirs", "pod_busy"}
			for _, g := range made {
				n.mkdir(g)
			}
			n.must(n.join(n.Mount.Resctrl()+"/pod_busy", n.container(n.pod("busy"), "app")))
			n.startApplier()
			n.startWatcher()
			n.history("u", "Exists 0/0, Exists 1/1")
			n.history("busy", "Exists 0/0, Exists 1/1")
			n.inGroup(c, n.GroupPath("u"), 1)
			gone := map[string]bool{}
			if on == "true" {
				gone = map[string]bool{"mon_groups/pod_stray": true, "pod_control": true}
			}
			for _, g := range made {
				if n.isDir(g) == gone[g] {
					t.Errorf("%s: there is %v", g, n.isDir(g))
				}
			}
			n.stop(n.Applier)
			d := n.startApplier() // again: nothing is left to do
			n.snapshots(1)
			if on == "true" && !strings.Contains(d.Log(), "removed=0 failed=0") {
				t.Errorf("the cleanup said:\n%s", d.Log())
			}
		})
	}
}
