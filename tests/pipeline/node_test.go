package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// node is a world whose errors end the test.
type node struct {
	*world.World
	t *testing.T
}

// set is a change of the options of a node.
type set func(*world.Options)

// with sets a key of the configuration.
func with(key, value string) set {
	return func(o *world.Options) {
		if o.Config == nil {
			o.Config = map[string]string{}
		}
		o.Config[key] = value
	}
}

// cpu changes the simulated CPU.
func cpu(change func(*sim.Config)) set {
	return func(o *world.Options) { change(o.Sim) }
}

// rmids is how many RMIDs there are, that of the root group counted.
func rmids(n int) set { return cpu(func(c *sim.Config) { c.NumRMIDs = n }) }

// noLimbo frees RMIDs at once.
func noLimbo() set { return cpu(func(c *sim.Config) { c.Limbo = 0 }) }

func noRuntime() set { return func(o *world.Options) { o.NoRuntime = true } }

// newNode makes a node on which nothing of ours runs yet. It is taken away at
// the end; the logs are shown if the test failed.
func newNode(t *testing.T, changes ...set) *node {
	t.Helper()
	cfg := sim.DefaultConfig()
	cfg.NumRMIDs = 64
	o := world.Options{Sim: &cfg}
	for _, c := range changes {
		c(&o)
	}
	w, err := world.New(shop, o)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{World: w, t: t}
	t.Cleanup(func() {
		if t.Failed() {
			n.show()
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// running is a node with both daemons at work.
func running(t *testing.T, changes ...set) *node {
	t.Helper()
	n := newNode(t, changes...)
	n.startApplier()
	n.startWatcher()
	n.snapshots(1)
	return n
}

// show prints what a person would look at.
func (n *node) show() {
	daemons := n.Daemons()
	most := 3000
	if os.Getenv("STACKS") == "1" { // where is a daemon that hangs?
		most = 60000
		for _, d := range daemons {
			d.Signal(syscall.SIGQUIT)
		}
		n.Watcher.Exit()
		n.Applier.Exit()
	}
	for _, d := range daemons[max(0, len(daemons)-6):] {
		log := d.Log()
		if len(log) > most {
			log = "… " + log[len(log)-most:]
		}
		n.t.Logf("%s (pid %d):\n%s", d.Name, d.PID, log)
	}
	if rows, err := n.Query("SELECT pod_uid, name, state, reason, tasks, attempts, last_error FROM containers"); err == nil {
		n.t.Logf("containers (pod, name, state, reason, tasks, attempts, error):\n%q", rows)
	}
	if events, err := n.Events(); err == nil {
		var b strings.Builder
		for _, e := range events[max(0, len(events)-60):] {
			fmt.Fprintf(&b, "%d %s %s (%s)\n", e.Seq, e.PodUID, e, e.Source)
		}
		n.t.Logf("%d events, the last are:\n%s", len(events), &b)
	}
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// until waits for a condition, by its complaint.
func (n *node) until(what string, ask func() error) {
	n.t.Helper()
	n.must(world.Until(what, ask))
}

func (n *node) startWatcher() *world.Daemon {
	n.t.Helper()
	d, err := n.StartWatcher()
	n.must(err)
	return d
}

func (n *node) startApplier() *world.Daemon {
	n.t.Helper()
	d, err := n.StartApplier()
	n.must(err)
	return d
}

// snapshots waits until the present applier has applied that many.
func (n *node) snapshots(want int) {
	n.t.Helper()
	n.logged(n.Applier, `msg="snapshot applied"`, want)
}

// logged waits until the daemon's log says it that often at least.
func (n *node) logged(d *world.Daemon, word string, times int) {
	n.t.Helper()
	n.until(fmt.Sprintf("%s logs %s %d times", d.Name, word, times), func() error {
		if got := strings.Count(d.Log(), word); got < times {
			return fmt.Errorf("%d times", got)
		}
		return nil
	})
}

// pod runs a pod in the namespace ns, named as its UID is; it gives the
// sandbox's id.
func (n *node) pod(uid string) string {
	n.t.Helper()
	id, err := n.Runtime.RunPod("pod-"+uid, "ns", uid, nrirt.PodOptions{})
	n.must(err)
	return id
}

// create makes a container that is not started.
func (n *node) create(sandbox, name string, workload ...string) string {
	n.t.Helper()
	if len(workload) == 0 {
		workload = []string{"sleep"}
	}
	id, err := n.Runtime.CreateContainer(sandbox, name, nrirt.ContainerOptions{Workload: workload})
	n.must(err)
	return id
}

// container makes and starts one, and waits until its program is set up.
func (n *node) container(sandbox, name string, workload ...string) string {
	n.t.Helper()
	id := n.create(sandbox, name, workload...)
	n.must(n.Runtime.StartContainer(id))
	n.ready(id)
	return id
}

func (n *node) ready(container string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	n.must(n.Runtime.Ready(ctx, container))
}

// history waits until exactly these events were told of the pod.
func (n *node) history(uid, want string) {
	n.t.Helper()
	n.until("the events of "+uid, func() error {
		got, err := n.History(uid)
		if err == nil && got != want {
			err = fmt.Errorf("want %q, got %q", want, got)
		}
		return err
	})
}

// last waits until the pod's last event is this one.
func (n *node) last(uid, want string) {
	n.t.Helper()
	n.until("the last event of "+uid, func() error {
		got, err := n.History(uid)
		if err == nil && got != want && !strings.HasSuffix(got, ", "+want) {
			err = fmt.Errorf("want %q, got %q", want, got)
		}
		return err
	})
}

// settle passes a pod through the whole pipeline: what was said before it has
// been dealt with then. Afterwards event log, state and simulator agree.
func (n *node) settle(logs ...string) {
	n.t.Helper()
	n.marker()
	n.must(n.Settled(logs...))
}

// marker runs and removes a pod, and waits until the state has known both. It
// asks the state: the event log may be in the middle of something. Where RMIDs
// are out, it fails to get a group, which is as good.
func (n *node) marker() {
	n.t.Helper()
	uid := fmt.Sprintf("marker-%d", time.Now().UnixNano())
	id := n.pod(uid)
	seen := func(kind string) func() error {
		return func() error {
			got, err := n.Value("SELECT count(*) FROM events WHERE pod_uid = ? AND type = ?", uid, kind)
			if err == nil && got == "0" {
				err = fmt.Errorf("no %s of the marker", kind)
			}
			return err
		}
	}
	n.until("the marker is known", seen("AddOrUpdate"))
	n.must(n.Runtime.RemovePod(id))
	n.until("the marker is gone", seen("Removed"))
}

// inGroup waits until every task of the container is in the pod's group.
func (n *node) inGroup(container, group string, tasks int) {
	n.t.Helper()
	n.until("every task is in the group", func() error {
		all, missing, err := n.Membership(container, group)
		switch {
		case err != nil:
			return err
		case len(missing) > 0:
			return fmt.Errorf("tasks %v of %d are not in %s", missing, all, group)
		case all < tasks:
			return fmt.Errorf("%d tasks, want %d", all, tasks)
		}
		return nil
	})
}

// job runs the retry job, which must end with one of the codes.
func (n *node) job(codes ...int) world.Result {
	n.t.Helper()
	r, err := n.Retry("--json")
	n.must(err)
	for _, c := range codes {
		if r.Code == c {
			return r
		}
	}
	n.t.Fatalf("resctrl-retry ended with %d, want %v: %s", r.Code, codes, r.Err)
	return r
}

// value is one value of the state.
func (n *node) value(query string, args ...any) string {
	n.t.Helper()
	v, err := n.Value(query, args...)
	n.must(err)
	return v
}

// oneLine says what is wrong with a program's complaint: it should be one line
// that matches all the patterns.
func oneLine(text string, patterns ...string) error {
	text = strings.TrimSpace(text)
	if strings.Contains(text, "\n") {
		return fmt.Errorf("more than one line: %s", text)
	}
	var errs []error
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(text) {
			errs = append(errs, fmt.Errorf("%q does not match %s", text, p))
		}
	}
	return errors.Join(errs...)
}

// stop ends a daemon in peace.
func (n *node) stop(d *world.Daemon) {
	n.t.Helper()
	code, err := d.Stop()
	n.must(err)
	if code != 0 {
		n.t.Fatalf("%s ended with %d:\n%s", d.Name, code, d.Log())
	}
}

// inode tells whether a group is the same as before.
func (n *node) inode(path string) uint64 {
	n.t.Helper()
	var st syscall.Stat_t
	n.must(syscall.Stat(path, &st))
	return st.Ino
}

// nopts are the options of a pod without any.
var nopts = nrirt.PodOptions{}

// mkdir makes a group by its path below resctrl's root.
func (n *node) mkdir(group string) {
	n.t.Helper()
	n.must(os.Mkdir(filepath.Join(n.Mount.Resctrl(), group), 0o755))
}

// isDir says whether a group is there.
func (n *node) isDir(group string) bool {
	info, err := os.Stat(filepath.Join(n.Mount.Resctrl(), group))
	return err == nil && info.IsDir()
}
