package attribution

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// Variables of the environment, set by the script that starts the guest.
const (
	EnvKernel = "NRI_RESCTRL_KERNEL" // this machine's resctrl may be used
	EnvBin    = "NRI_RESCTRL_BIN"    // where the programs and the workload are
	// EnvCaps has the numbers of the capabilities that the programs get, with
	// commas ("none" is none); unset is all of root's.
	EnvCaps = "NRI_RESCTRL_CAPS"
)

// Where the kernel's filesystems are in the guest.
const (
	Root    = "/sys/fs/resctrl"
	Cgroups = "/sys/fs/cgroup"
)

// Theirs is a name with our prefix that a test gives to a group of another tool.
const Theirs = "pod_theirs"

// patience is how long anything may take that is waited for, in a guest that is
// slow on a machine that has more to do.
const patience = 90 * time.Second

// Node is one life of our programs on this machine.
type Node struct {
	Dir     string
	Bin     string
	Caps    string // of the programs; "" is all
	Watcher *Watcher

	t       testing.TB
	applier *exec.Cmd
	logs    int
	serial  int
	kube    string // directory of the cgroup of all pods
}

// New gives a node without an applier yet. Everything of it ends with the test.
// It skips the test outside a guest.
func New(t testing.TB) *Node {
	t.Helper()
	if os.Getenv(EnvKernel) == "" || os.Getenv(EnvBin) == "" {
		t.Skip("needs the resctrl of a guest: make test-kernel")
	}
	n := &Node{t: t, Dir: t.TempDir(), Bin: os.Getenv(EnvBin), Caps: os.Getenv(EnvCaps)}
	if !Mounted() {
		n.must(unix.Mount("resctrl", Root, "resctrl", 0, ""))
	}
	n.clear()
	// An earlier case may have left all RMIDs in limbo, which they leave together.
	probe := Root + "/mon_groups/probe"
	n.must(Make(probe))
	n.must(unix.Rmdir(probe))
	for _, d := range []string{"run", "lib", "out"} {
		n.must(os.Mkdir(filepath.Join(n.Dir, d), 0o750))
	}
	n.kube = filepath.Join(Cgroups, "kubepods")
	n.must(os.Mkdir(n.kube, 0o755))
	config := fmt.Sprintf(`
[pipe]
path = %q
ack_path = %q
[state]
path = %q
[events]
path = %q
node = "guest"
[log]
level = "debug"
`, n.path("run/lifecycle.pipe"), n.path("run/ack.pipe"), n.Database(), n.EventLog())
	n.must(os.WriteFile(n.path("config.toml"), []byte(config), 0o644))
	n.Watcher = newWatcher(t, n.path("run/lifecycle.pipe"), n.path("run/ack.pipe"))
	t.Cleanup(n.end)
	return n
}

func (n *Node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *Node) path(name string) string { return filepath.Join(n.Dir, name) }

// Database is the state's file.
func (n *Node) Database() string { return n.path("lib/state.db") }

// EventLog is the event log's file.
func (n *Node) EventLog() string { return n.path("out/events.jsonl") }

// clear removes every group and cgroup that an earlier test left.
func (n *Node) clear() {
	for _, pattern := range []string{Root + "/*", Root + "/mon_groups/*"} {
		dirs, _ := filepath.Glob(pattern)
		for _, d := range dirs {
			switch filepath.Base(d) {
			case "info", "mon_groups", "mon_data":
			default:
				_ = unix.Rmdir(d) // ENOTDIR of files
			}
		}
	}
	KillCgroup(filepath.Join(Cgroups, "kubepods"))
}

func (n *Node) end() {
	n.StopApplier()
	n.Watcher.close()
	for i := 1; i <= n.logs; i++ {
		log, _ := os.ReadFile(n.path(fmt.Sprintf("applier.%d.log", i)))
		for _, word := range []string{"panic:", "fatal error:"} {
			if bytes.Contains(log, []byte(word)) {
				n.t.Errorf("the applier said: %s", log)
			}
		}
		if n.t.Failed() {
			n.t.Logf("log of applier %d:\n%s", i, tail(log, 12000))
		}
	}
	if Mounted() {
		n.clear()
	}
}

func tail(text []byte, most int) []byte { return text[max(0, len(text)-most):] }

// command is a program of ours with this node's configuration, with no more
// capabilities than the node's.
func (n *Node) command(name string, args ...string) *exec.Cmd {
	args = append([]string{"--config", n.path("config.toml")}, args...)
	program := filepath.Join(n.Bin, name)
	if n.Caps != "" {
		args = append([]string{"caps", n.Caps, program}, args...)
		program = filepath.Join(n.Bin, "workload")
	}
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// StartApplier starts resctrl-applier and waits until it has carried out the
// snapshot of what is present.
func (n *Node) StartApplier() {
	n.t.Helper()
	n.LaunchApplier()
	n.Watcher.Synchronized()
}

// LaunchApplier starts resctrl-applier and waits for nothing.
func (n *Node) LaunchApplier() {
	n.t.Helper()
	n.logs++
	log, err := os.Create(n.path(fmt.Sprintf("applier.%d.log", n.logs)))
	n.must(err)
	defer log.Close()
	n.applier = n.command("resctrl-applier")
	n.applier.Stdout, n.applier.Stderr = log, log
	n.must(n.applier.Start())
}

// StopApplier ends it, if it runs.
func (n *Node) StopApplier() {
	if n.applier == nil {
		return
	}
	_ = n.applier.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(patience, func() { _ = n.applier.Process.Kill() })
	defer kill.Stop()
	if err := n.applier.Wait(); err != nil {
		n.t.Errorf("resctrl-applier: %v", err)
	}
	n.applier = nil
}

// ApplierPID is the applier's process.
func (n *Node) ApplierPID() int { return n.applier.Process.Pid }

// ApplierLog is what the latest applier has written.
func (n *Node) ApplierLog() string {
	text, err := os.ReadFile(n.path(fmt.Sprintf("applier.%d.log", n.logs)))
	n.must(err)
	return string(text)
}

// Job is what resctrl-retry --json printed, and its exit code.
type Job struct {
	Code int
	Pass struct {
		Groups []struct {
			PodUID  string `json:"pod_uid"`
			Outcome string `json:"outcome"`
			Reason  string `json:"reason"`
		} `json:"groups"`
		NotTried int `json:"not_tried"`
	} `json:"pass"`
	Sweep struct {
		Pods    int      `json:"pods"`
		Changed []string `json:"changed"`
		Removed []string `json:"removed"`
	} `json:"sweep"`
	Began, Ended time.Time
	Stderr       string
}

// Retry runs resctrl-retry once: a pass over what failed, and a sweep.
func (n *Node) Retry() Job {
	n.t.Helper()
	job := Job{Began: time.Now()}
	cmd := n.command("resctrl-retry", "--json")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	job.Ended, job.Code, job.Stderr = time.Now(), cmd.ProcessState.ExitCode(), errs.String()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		n.t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &job); err != nil {
		n.t.Fatalf("resctrl-retry: %v in %q; exit %d, %s", err, out.String(), job.Code, job.Stderr)
	}
	return job
}

// Sweep runs resctrl-retry and wants it to end well.
func (n *Node) Sweep() Job {
	n.t.Helper()
	job := n.Retry()
	if job.Code != 0 {
		n.t.Fatalf("resctrl-retry ended with %d: %s", job.Code, job.Stderr)
	}
	return job
}

// Ctl runs resctrlctl and gives what it printed.
func (n *Node) Ctl(args ...string) string {
	n.t.Helper()
	cmd := n.command("resctrlctl", args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		n.t.Fatalf("resctrlctl %s: %v: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String()
}

// Value is the only column of the first row of a query on the state.
func (n *Node) Value(query string, args ...any) string {
	n.t.Helper()
	rows, err := world.QueryFile(n.Database(), query, args...)
	n.must(err)
	if len(rows) == 0 {
		return ""
	}
	return rows[0][0]
}

// Events is the event log.
func (n *Node) Events() []world.Event {
	n.t.Helper()
	events, err := world.ReadEvents(n.EventLog())
	n.must(err)
	return events
}

// History is what was told of a pod from the event number from on (0 is all), in
// short, with commas.
func (n *Node) History(uid string, from int) string {
	n.t.Helper()
	var words []string
	for _, e := range n.Events()[from:] {
		if e.PodUID == uid {
			words = append(words, e.String())
		}
	}
	return strings.Join(words, ", ")
}

// Until asks until ask has no complaint any more.
func (n *Node) Until(what string, ask func() error) {
	n.t.Helper()
	n.must(world.UntilWithin(patience, what, ask))
}

// Settled waits until what was acknowledged is committed and exported, which is
// when the writer's lock is given back, until event log and state tell the same
// story, and the group of every pod that Exists is there and no other of ours.
func (n *Node) Settled() {
	n.t.Helper()
	n.Until("event log, state and resctrl agree", func() error {
		if n.Writing() {
			return errors.New("a program has the writer's lock")
		}
		return n.agree()
	})
}

func (n *Node) agree() error {
	pods, err := world.AgreeOnRecord(n.Database(), n.EventLog())
	if err != nil {
		return err
	}
	want := map[string]bool{}
	for uid, p := range pods {
		if p.GroupState == "Exists" {
			if want[p.GroupPath] = true; !isDir(p.GroupPath) {
				return fmt.Errorf("pod %s: its group %s is not there", uid, p.GroupPath)
			}
		}
	}
	for _, g := range OurGroups() {
		if !want[g] && filepath.Base(g) != Theirs {
			return fmt.Errorf("group %s is no pod's", g)
		}
	}
	return nil
}

// Writing says whether a program of ours has the writer's lock.
func (n *Node) Writing() bool {
	f, err := os.Open(n.path("run/writer.lock"))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// StateGroup makes a group of users, and has state and event log given to it.
func (n *Node) StateGroup(t testing.TB, name string, gid int) {
	t.Helper()
	const groups = "/etc/group" // the guest has none
	n.must(os.WriteFile(groups, fmt.Appendf(nil, "root:x:0:\n%s:x:%d:\n", name, gid), 0o644))
	t.Cleanup(func() { n.must(os.Remove(groups)) })
	config, err := os.ReadFile(n.path("config.toml"))
	n.must(err)
	config = bytes.Replace(config, []byte("[state]\n"), fmt.Appendf(nil, "[state]\ngroup = %q\n", name), 1)
	n.must(os.WriteFile(n.path("config.toml"), config, 0o644))
}
