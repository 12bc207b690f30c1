package pipeline

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// TestBadInputInThePipe: garbage, a gap, a line of 2 MiB, a cut snapshot: each
// is told in the log, each ends in a new snapshot, and nothing of it is taken.
func TestBadInputInThePipe(t *testing.T) {
	t.Parallel()
	n := running(t)
	pipe := n.hold()
	pod := n.pod("u")
	record := func(epoch string, seq int, rest string) string {
		return fmt.Sprintf("\n"+`{"v":1,"epoch":%q,"seq":%d,"time":"2026-01-01T00:00:00Z",%s}`+"\n", epoch, seq, rest)
	}
	const ghost = `"pod":{"id":"ghost","uid":"ghost","name":"g","namespace":"g"}`
	const sync = `"event":"SYNCHRONIZE",`
	bad := []struct{ name, text string }{
		{"garbage", "\nthis is no record\n"},
		{"binary", "\n\x00\xff\xfe{\x01\n"},
		{"half a record", "\n{\"v\":1,\"epoch\":\n"},
		{"another version", strings.Replace(record("x", 1, `"event":"RUN_POD_SANDBOX",`+ghost), `"v":1`, `"v":2`, 1)},
		{"a gap", record(n.epochOf(), 999, `"event":"RUN_POD_SANDBOX",`+ghost)},
		{"another epoch", record("stranger", 7, `"event":"RUN_POD_SANDBOX",`+ghost)},
		{"a snapshot that counts wrong", record("liar", 1, sync+`"phase":"begin"`) + record("liar", 2, sync+ghost) +
			record("liar", 3, sync+`"phase":"end","pods":2,"containers":0`)},
		{"a line of 2 MiB", "\n" + strings.Repeat("x", 2<<20) + "\n"},
		{"a container without a pod", record(n.epochOf(), 1, `"event":"START_CONTAINER"`)},
	}
	for i, b := range bad {
		asked := strings.Count(n.Applier.Log(), "asking for a new snapshot")
		n.put(pipe, b.text)
		n.logged(n.Applier, "asking for a new snapshot", asked+1)
		n.snapshots(i + 2)
		n.container(pod, fmt.Sprintf("c%d", i))
		n.last("u", fmt.Sprintf("Exists %d/%d", i+1, i+1))
	}

	// What is only unknown is skipped: a field, an event outside the sequence.
	asked := strings.Count(n.Applier.Log(), "asking for a new snapshot")
	n.put(pipe, "\n\n"+`{"v":1,"epoch":"","seq":0,"time":"2026-01-01T00:00:00Z","event":"FROM_THE_FUTURE","more":[1]}`+"\n\n")
	n.logged(n.Applier, "FROM_THE_FUTURE", 1)
	n.settle()
	if got := strings.Count(n.Applier.Log(), "asking for a new snapshot"); got != asked {
		t.Errorf("an unknown event made the applier ask for a new snapshot")
	}
	n.nothingOf("ghost")
}

// TestGarbageInTheAcknowledgements: the watcher never dies of what it reads.
func TestGarbageInTheAcknowledgements(t *testing.T) {
	t.Parallel()
	n := running(t)
	f, err := os.OpenFile(n.AckPipe(), os.O_WRONLY, 0)
	n.must(err)
	defer f.Close()
	for _, text := range []string{"garbage\n", "\x00\n", `{"hello":""}` + "\n", `{"epoch":"x","seq":18446744073709551615}` + "\n",
		strings.Repeat("y", 1<<16) + "\n", "{\"hello\":\"half", "\n"} {
		_, err := f.WriteString(text)
		n.must(err)
	}
	n.container(n.pod("u"), "app")
	n.history("u", "Exists 0/0, Exists 1/0, Exists 1/1")
	n.settle()
}

// TestByHand: records of nri-watcher --stdout, given to resctrl-applier
// --stdin, do the same; a gap there is fatal, a cut snapshot changes nothing.
func TestByHand(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.container(n.pod("u"), "app")
	d, err := n.Start(world.WatcherProgram, "--stdout")
	n.must(err)
	n.logged(d, `"phase":"end"`, 1)
	n.container(n.pod("late"), "app")
	n.logged(d, "POST_START_CONTAINER", 1)
	n.stop(d)
	var lines []string
	for l := range strings.Lines(d.Log()) {
		if strings.HasPrefix(l, "{") && !strings.Contains(l, "HEARTBEAT") {
			lines = append(lines, l)
		}
	}
	if strings.Contains(d.Log(), "environ") || len(lines) < 8 {
		t.Fatalf("%d records:\n%s", len(lines), d.Log())
	}
	apply := func(code int, input ...string) string {
		t.Helper()
		r, err := n.RunWith(strings.Join(input, ""), world.ApplierProgram, "--stdin")
		n.must(err)
		if r.Code != code {
			t.Fatalf("exit code %d, want %d: %s", r.Code, code, r.Err)
		}
		return r.Err
	}
	apply(65, lines[:3]...) // cut off inside the snapshot
	if got := n.value("SELECT count(*) FROM pods"); got != "0" {
		t.Errorf("a cut snapshot left %s pods", got)
	}
	apply(0, lines...)
	n.history("u", "Exists 0/0, Exists 1/1")
	n.history("late", "Exists 0/0, Exists 1/0, Exists 1/1")
	n.must(n.Settled())
	said := apply(65, append(lines[:4:4], lines[5:]...)...)
	if !strings.Contains(said, "comes after record") {
		t.Errorf("a gap is told as %s", said)
	}
	apply(65, "garbage\n")
	apply(65, strings.Repeat("x", 2<<20)+"\n")
	apply(0, "", "\n\n")
	n.must(n.Settled())
}

// TestFIFOsRefused: what stands in the place of a FIFO and is none, or is open
// to others, is refused, told once, and tried again.
func TestFIFOsRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.must(os.WriteFile(n.Pipe(), []byte("precious"), 0o600))
	n.startApplier()
	n.startWatcher()
	for _, d := range []*world.Daemon{n.Applier, n.Watcher} {
		n.logged(d, "it is a regular file", 1)
	}
	n.logged(n.Watcher, "synchronized with the runtime", 1)
	n.must(os.Remove(n.Pipe()))
	n.must(exec.Command("mkfifo", "-m", "0666", n.Pipe()).Run())
	n.logged(n.Applier, "chmod", 1)
	n.must(os.Remove(n.Pipe()))
	n.snapshots(1)
	for _, d := range []*world.Daemon{n.Applier, n.Watcher} {
		if got := strings.Count(d.Log(), "it is a regular file"); got != 1 {
			t.Errorf("%s told it %d times:\n%s", d.Name, got, d.Log())
		}
	}
	info, err := os.Stat(n.Pipe())
	n.must(err)
	if info.Mode() != os.ModeNamedPipe|0o600 {
		t.Errorf("the pipe is %s", info.Mode())
	}

	// Both paths are replaced while everything runs.
	n.must(os.Remove(n.Pipe()))
	n.must(os.Rename(n.AckPipe(), filepath.Join(n.Dir, "elsewhere")))
	n.container(n.pod("u"), "app")
	n.last("u", "Exists 1/1")
	n.settle()
}
