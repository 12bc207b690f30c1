package pipeline

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestJudge: what all other tests rely on sees what is wrong: a group that is
// missing, one that is nobody's, a task outside, a line that is missing.
func TestJudge(t *testing.T) {
	t.Parallel()
	n := running(t)
	c := n.container(n.pod("u"), "app")
	n.history("u", "Exists 0/0, Exists 1/0, Exists 1/1")
	n.settle()
	blames := func(what string) {
		t.Helper()
		if err := n.Agree(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s, and the judge says: %v", what, err)
		}
	}
	n.mkdir("mon_groups/pod_stray")
	blames("is no pod's")
	n.must(os.Remove(n.GroupPath("stray")))

	all, _, err := n.Membership(c, n.GroupPath("u"))
	n.must(err)
	tids, err := n.TasksOf(n.GroupPath("u"))
	n.must(err)
	if len(tids) != all {
		t.Fatalf("%d tasks, %d in the group", all, len(tids))
	}
	one := []byte(strconv.Itoa(tids[0]))
	n.must(os.WriteFile(filepath.Join(n.Mount.Resctrl(), "tasks"), one, 0))
	blames("are not in")
	n.must(os.WriteFile(filepath.Join(n.GroupPath("u"), "tasks"), one, 0))
	n.must(n.Agree())

	log, err := os.ReadFile(n.EventLog())
	n.must(err)
	lines := strings.SplitAfter(string(log), "\n")
	n.must(os.WriteFile(n.EventLog(), []byte(strings.Join(lines[1:], "")), 0o640))
	blames("events in the log")
	n.must(os.WriteFile(n.EventLog(), log[:len(log)-1], 0o640))
	blames("torn line")
	n.must(os.WriteFile(n.EventLog(), log, 0o640))

	n.must(os.Remove(n.GroupPath("u")))
	blames("is not there")
}
