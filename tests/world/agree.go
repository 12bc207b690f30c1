package world

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
)

// Agree says where event log, state and simulator do not tell the same story.
// The log files are this node's, the oldest first; none is its one.
func (w *World) Agree(logs ...string) error {
	if len(logs) == 0 {
		logs = []string{w.EventLog()}
	}
	pods, err := AgreeOnRecord(w.Database(), logs...)
	if err != nil {
		return err
	}
	return w.AgreeOnKernel(pods)
}

// AgreeOnKernel says where the simulator's groups and tasks are not those of the
// pods.
func (w *World) AgreeOnKernel(pods map[string]PodOf) error {
	return errors.Join(w.agreeOnGroups(pods), w.agreeOnTasks())
}

// AgreeOnRecord compares an event log with a state: every event of the table
// stands in the log, once, in order, byte for byte; and the pods that the
// events tell are those of the state. It gives them.
func AgreeOnRecord(database string, logs ...string) (map[string]PodOf, error) {
	events, err := ReadEvents(logs...)
	if err != nil {
		return nil, err
	}
	rows, err := QueryFile(database, "SELECT line FROM events ORDER BY seq")
	if err != nil {
		return nil, err
	}
	if len(rows) != len(events) {
		return nil, fmt.Errorf("%d events in the log, %d in the state", len(events), len(rows))
	}
	for i, row := range rows {
		if line := strings.TrimSuffix(row[0], "\n"); line != events[i].Line {
			return nil, fmt.Errorf("event %d: the log has %s, the state %s", i+1, events[i].Line, line)
		}
	}
	told, err := Rebuild(events)
	if err != nil {
		return nil, err
	}
	return told, agreeOnPods(database, told)
}

// AgreeOnPods compares an event log with a state that may have lost events: the
// pods that all events of the log tell are those of the state, and nothing but a
// Removed is told again. It gives them.
func AgreeOnPods(database string, logs ...string) (map[string]PodOf, error) {
	events, err := ReadEvents(logs...)
	if err != nil {
		return nil, err
	}
	told, err := rebuild(events, false)
	if err != nil {
		return nil, err
	}
	return told, agreeOnPods(database, told)
}

func agreeOnPods(database string, told map[string]PodOf) error {
	known, err := statePods(database)
	if err != nil {
		return err
	}
	var errs []error
	for _, uid := range slices.Sorted(maps.Keys(told)) {
		if known[uid] != told[uid] {
			errs = append(errs, fmt.Errorf("pod %s: the events tell %+v, the state %+v", uid, told[uid], known[uid]))
		}
	}
	for uid := range known {
		if _, ok := told[uid]; !ok {
			errs = append(errs, fmt.Errorf("pod %s: the state has it, the events do not", uid))
		}
	}
	return errors.Join(errs...)
}

// statePods reads the pods and checks each one's counters against its
// containers.
func statePods(database string) (map[string]PodOf, error) {
	rows, err := QueryFile(database, `SELECT pod_uid, namespace, name, group_state, iif(group_state = 'Exists', group_path, ''),
		total_containers, reconciled_containers,
		(SELECT count(*) FROM containers c WHERE c.pod_uid = p.pod_uid),
		(SELECT count(*) FROM containers c WHERE c.pod_uid = p.pod_uid AND c.reconciled)
		FROM pods p WHERE NOT removing`)
	if err != nil {
		return nil, err
	}
	pods := map[string]PodOf{}
	for _, r := range rows {
		p := PodOf{Namespace: r[1], Name: r[2], GroupState: r[3], GroupPath: r[4]}
		p.Total, _ = strconv.Atoi(r[5])
		p.Reconciled, _ = strconv.Atoi(r[6])
		if r[5] != r[7] || r[6] != r[8] {
			return nil, fmt.Errorf("pod %s: counters %s/%s, rows of containers %s/%s", r[0], r[5], r[6], r[7], r[8])
		}
		pods[r[0]] = p
	}
	return pods, nil
}

// agreeOnGroups: the simulator has the group of each pod that Exists, of one
// whose removal is unfinished perhaps, and no other with the prefix.
func (w *World) agreeOnGroups(pods map[string]PodOf) error {
	there, err := w.Groups()
	if err != nil {
		return err
	}
	rows, err := w.Query("SELECT group_path FROM pods WHERE removing")
	if err != nil {
		return err
	}
	left := map[string]bool{}
	for _, r := range rows {
		left[r[0]] = true
	}
	want := map[string]bool{}
	var errs []error
	for uid, p := range pods {
		if p.GroupState != "Exists" {
			continue
		}
		want[p.GroupPath] = true
		if !slices.Contains(there, p.GroupPath) {
			errs = append(errs, fmt.Errorf("pod %s: its group %s is not there", uid, p.GroupPath))
		}
	}
	for _, g := range there {
		if !want[g] && !left[g] {
			errs = append(errs, fmt.Errorf("group %s is no pod's", g))
		}
	}
	return errors.Join(errs...)
}

// Groups lists the monitoring groups with our prefix, in all control groups.
func (w *World) Groups() ([]string, error) {
	root := w.Mount.Resctrl()
	var all []string
	for _, pattern := range []string{"mon_groups/pod_*", "*/mon_groups/pod_*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// TasksOf reads the tasks file of a group, given by its path.
func (w *World) TasksOf(group string) ([]int, error) {
	text, err := os.ReadFile(filepath.Join(group, "tasks"))
	if err != nil {
		return nil, err
	}
	var tids []int
	for _, word := range strings.Fields(string(text)) {
		tid, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("%s/tasks: %w", group, err)
		}
		tids = append(tids, tid)
	}
	return tids, nil
}

// agreeOnTasks: every task of a container that is Reconciled is in its pod's
// group, whatever cgroup below the container's it is in.
func (w *World) agreeOnTasks() error {
	rows, err := w.Query(`SELECT c.container_id, p.group_path FROM containers c JOIN pods p USING (pod_uid)
		WHERE c.state = 'Reconciled' AND p.group_state = 'Exists' AND NOT p.removing`)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range rows {
		_, missing, err := w.Membership(r[0], r[1])
		switch {
		case errors.Is(err, nrirt.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, err)
		case len(missing) > 0:
			errs = append(errs, fmt.Errorf("container %s is Reconciled, and tasks %v are not in %s", r[0], missing, r[1]))
		}
	}
	return errors.Join(errs...)
}

// Membership counts the tasks of a container, and lists those that are not in
// the group.
func (w *World) Membership(container, group string) (tasks int, missing []int, err error) {
	cg, err := w.Runtime.Cgroup(container)
	if err != nil {
		return 0, nil, err
	}
	tids, err := w.Cgroups.Threads(cg, true)
	if err != nil {
		return 0, nil, err
	}
	in, err := w.TasksOf(group)
	if err != nil {
		return 0, nil, err
	}
	for _, tid := range tids {
		if !slices.Contains(in, tid) {
			missing = append(missing, tid)
		}
	}
	return len(tids), missing, nil
}

// Settled waits until all three agree, and nothing more is said or done about
// it when it is asked again.
func (w *World) Settled(logs ...string) error {
	return Until("event log, state and simulator agree", func() error { return w.Agree(logs...) })
}
