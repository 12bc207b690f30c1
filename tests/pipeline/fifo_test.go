package pipeline

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/sim/fusemount"
)

// hold opens the pipe for both, as nobody of ours does: it keeps what is in
// it, and is a writer of whatever a test likes. The FIFO is made if need be.
func (n *node) hold() *os.File {
	n.t.Helper()
	if err := syscall.Mkfifo(n.Pipe(), 0o600); err != nil && err != syscall.EEXIST {
		n.t.Fatal(err)
	}
	f, err := os.OpenFile(n.Pipe(), os.O_RDWR|syscall.O_NONBLOCK, 0)
	n.must(err)
	n.t.Cleanup(func() { f.Close() })
	return f
}

// put writes text into the pipe; it waits while the pipe is full.
func (n *node) put(f *os.File, text string) {
	n.t.Helper()
	n.must(f.SetWriteDeadline(time.Now().Add(time.Minute)))
	_, err := f.WriteString(text)
	n.must(err)
}

// epochOf is the epoch of the applier's last snapshot.
func (n *node) epochOf() string {
	n.t.Helper()
	found := regexp.MustCompile(`msg="snapshot applied" epoch=(\S+)`).FindAllStringSubmatch(n.Applier.Log(), -1)
	if len(found) == 0 {
		n.t.Fatal("no snapshot was applied")
	}
	return found[len(found)-1][1]
}

// none of the words may stand anywhere in what the applier left.
func (n *node) nothingOf(words ...string) {
	n.t.Helper()
	events, err := os.ReadFile(n.EventLog())
	n.must(err)
	groups, err := n.Groups()
	n.must(err)
	rows, err := n.Query("SELECT pod_uid FROM pods UNION SELECT container_id FROM containers")
	n.must(err)
	all := fmt.Sprint(string(events), groups, rows)
	for _, w := range words {
		if strings.Contains(all, w) {
			n.t.Errorf("%s was taken up:\n%s", w, all)
		}
	}
}

// oldEpoch is what a watcher of an earlier time left in the pipe: a whole
// snapshot, a change, half a line.
const oldEpoch = `
{"v":1,"epoch":"old","seq":1,"time":"2026-01-01T00:00:00Z","event":"SYNCHRONIZE","phase":"begin","hello":"older","runtime":"containerd"}
{"v":1,"epoch":"old","seq":2,"time":"2026-01-01T00:00:00Z","event":"SYNCHRONIZE","pod":{"id":"ghost1","uid":"ghost1","name":"g","namespace":"g"}}
{"v":1,"epoch":"old","seq":3,"time":"2026-01-01T00:00:00Z","event":"SYNCHRONIZE","phase":"end","pods":1,"containers":0}
{"v":1,"epoch":"old","seq":4,"time":"2026-01-01T00:00:00Z","event":"RUN_POD_SANDBOX","pod":{"id":"ghost2","uid":"ghost2","name":"g","namespace":"g"}}
{"v":1,"epoch":"old","seq":5,"time":"2026-01-01T00:00:00Z","event":"RUN_POD_SAN`

// TestOldEpochInThePipe: nothing that an earlier watcher left is taken up, and
// half a line before the begin spoils nothing.
func TestOldEpochInThePipe(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	old := n.hold()
	n.put(old, oldEpoch)
	n.container(n.pod("real"), "app")
	n.startWatcher()
	n.logged(n.Watcher, "synchronized with the runtime", 1)
	n.startApplier()
	n.history("real", "Exists 0/0, Exists 1/1")

	// Again, while the watcher lives on and the applier does not look.
	n.Applier.Kill()
	n.put(old, oldEpoch)
	n.startApplier()
	n.history("real", "Exists 0/0, Exists 1/1, Exists 1/1")
	n.settle()
	n.nothingOf("ghost1", "ghost2")
	if got := strings.Count(n.Applier.Log(), "asking for a new snapshot"); got != 1 {
		t.Errorf("the applier asked %d times:\n%s", got, n.Applier.Log())
	}
}

// TestReaderAbsentAndBack: the watcher is up alone, pods come and go; the
// applier comes, goes while nothing happens, comes again.
func TestReaderAbsentAndBack(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.startWatcher()
	n.logged(n.Watcher, "synchronized with the runtime", 1)
	a, b := n.pod("a"), n.pod("b")
	n.container(a, "app")
	n.must(n.Runtime.RemovePod(b))
	n.startApplier()
	n.history("a", "Exists 0/0, Exists 1/1")
	for i := range 4 { // idle: nothing is written while it is away
		if i%2 == 0 {
			n.stop(n.Applier)
		} else {
			n.Applier.Kill()
		}
		n.startApplier()
		n.snapshots(1)
	}
	n.history("a", "Exists 0/0, Exists 1/1"+strings.Repeat(", Exists 1/1", 4))
	n.history("b", "")

	// Strangers open both ends, and close them without a word.
	for _, flag := range []int{os.O_RDONLY, os.O_WRONLY} {
		f, err := os.OpenFile(n.Pipe(), flag|syscall.O_NONBLOCK, 0)
		n.must(err)
		n.must(f.Close())
	}
	n.container(a, "more")
	n.last("a", "Exists 2/2")
	n.settle()
}

// TestStalledReader: the applier is stopped (SIGSTOP) until pipe and queue are
// full. The runtime never waits; the number of dropped records is told; the
// next snapshot brings everything.
func TestStalledReader(t *testing.T) {
	t.Parallel()
	n := running(t, with("watcher.queue_size", "16"), with("watcher.start_barrier", `"50ms"`))
	a, gone := n.pod("a"), n.pod("gone")
	c := n.container(a, "app")
	n.last("a", "Exists 1/1")
	n.Applier.Pause()
	n.must(n.Runtime.RemovePod(gone))
	n.overflow(c)
	n.container(n.pod("b"), "app")
	n.container(a, "late")
	n.Applier.Resume()
	n.last("b", "Exists 1/1")
	n.last("a", "Exists 2/2")
	n.last("gone", "Exists 0/0, Removed")
	n.settle()
	if strings.Contains(n.Applier.Log(), "the stream of records is broken") {
		t.Error("the watcher did not begin anew by itself")
	}
	n.until("status tells what was dropped", func() error {
		if d := n.status().Watcher.QueueDropped; d == 0 {
			return fmt.Errorf("%d records", d)
		}
		return nil
	})
}

// overflow tells of more updates than pipe (64 KiB) and queue hold, while the
// applier is stopped, and waits until the watcher says what it dropped.
func (n *node) overflow(container string) {
	n.t.Helper()
	const word = "records were dropped"
	before := strings.Count(n.Watcher.Log(), word)
	for range 600 {
		n.must(n.Runtime.Update(container))
	}
	n.logged(n.Watcher, word, before+1)
}

// TestOverflowUnderLoad: pods come and go in four hands while the applier is
// slow, and stopped again and again until the queue overflows.
func TestOverflowUnderLoad(t *testing.T) {
	t.Parallel()
	n := running(t, noLimbo(), with("watcher.queue_size", "8"), with("watcher.start_barrier", `"5ms"`))
	c := n.container(n.pod("busy"), "app")
	n.Mount.Faults.Add(fusemount.Fault{Op: "mkdir", Path: "pod_u", Delay: 3 * time.Millisecond})
	var wg sync.WaitGroup
	for hand := range 4 {
		wg.Go(func() {
			for i := range 6 {
				if err := n.liveOnePod(fmt.Sprintf("u%d-%d", hand, i), i%3 != 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		n.Applier.Pause()
		n.overflow(c)
		n.Applier.Resume()
	}
	wg.Wait()
	n.settle()
	if got := n.value("SELECT count(*) FROM pods WHERE NOT removing AND group_state = 'Exists'"); got != "9" {
		t.Errorf("%s pods, want 9", got)
	}
}

// TestWatcherBeforeItsRuntime: a watcher that is up before its runtime has an
// empty memory, which is not an empty node.
func TestWatcherBeforeItsRuntime(t *testing.T) {
	t.Parallel()
	n := running(t)
	n.container(n.pod("a"), "app")
	n.last("a", "Exists 1/1")
	n.stop(n.Watcher)
	n.Runtime.Down()
	n.startWatcher()
	n.logged(n.Watcher, "an applier reads the pipe", 1)
	n.until("the runtime is said to be away", func() error {
		if s := n.status(); s.Watcher.PID != n.Watcher.PID || s.Runtime.State != "disconnected" {
			return fmt.Errorf("status: %+v", s)
		}
		return nil
	})
	n.stop(n.Applier) // a hello of a new one changes nothing about it
	n.startApplier()
	n.logged(n.Applier, "asking for a new snapshot", 1)
	n.until("a heartbeat came", func() error {
		if got := n.value("SELECT value FROM meta WHERE key = 'last_heartbeat'"); !strings.Contains(got, "disconnected") {
			return fmt.Errorf("the last is %s", got)
		}
		return nil
	})
	n.history("a", "Exists 0/0, Exists 1/0, Exists 1/1")
	if strings.Contains(n.Applier.Log(), "snapshot applied") {
		t.Error("a snapshot of nothing was applied")
	}
	n.must(n.Runtime.Up())
	n.snapshots(1)
	n.history("a", "Exists 0/0, Exists 1/0, Exists 1/1, Exists 1/1")
	n.settle()
	if s := n.status(); s.Runtime.State != "connected" {
		t.Errorf("status: %+v", s)
	}
}

// status is what resctrlctl tells programs.
type status struct {
	Watcher struct {
		State        string
		PID          int
		QueueDropped int `json:"queue_dropped"`
		Hits         int `json:"barrier_hits"`
		Misses       int `json:"barrier_misses"`
		Skips        int `json:"barrier_skips"`
	}
	Runtime struct{ State string }
	Applier struct {
		State   string
		PID     int
		Resctrl string
	}
	Resctrl  struct{ Reason string }
	Problems []string
}

func (n *node) status() status {
	n.t.Helper()
	r, err := n.Ctl("status", "--json")
	n.must(err)
	var s status
	if err := json.Unmarshal([]byte(r.Out), &s); err != nil {
		n.t.Fatalf("resctrlctl status --json (exit code %d): %v in %s%s", r.Code, err, r.Out, r.Err)
	}
	return s
}
