//go:build logs

// The event log with the real logrotate and rsyslogd: `make test-logs`, as root.
package install

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/outbox"
)

const (
	events    = 100_000 // at least
	rotations = 10
	batch     = 16 // events of one append
	logID     = "0123456789abcdef"

	installedLog = "/var/log/nri-resctrl/events.jsonl"
	installedOut = "/var/log/nri-resctrl-events.log"
)

// Every event arrives exactly once at the file that rsyslogd writes, through
// ten rotations by rename at full rate, compression of the old files included.
func TestRotationByRename(t *testing.T) {
	n := newNode(t)
	n.configureLogrotate("")
	n.startRsyslog()
	n.writeAndRotate()
	inFiles := n.readFiles()
	n.judge("the log's files", inFiles, n.all())
	n.judge("what rsyslogd wrote", n.shipped(n.src.last), n.all())
	n.stopRsyslog()
	n.judge("what rsyslogd wrote, at its end", n.shipped(n.src.last), n.all())
}

// A restart of rsyslogd in the middle loses and repeats nothing.
func TestRsyslogRestarted(t *testing.T) {
	n := newNode(t)
	n.configureLogrotate("")
	n.startRsyslog()
	n.write(events / 2)
	n.shipped(events / 4)
	n.stopRsyslog()
	n.write(events / 4)
	n.startRsyslog()
	n.write(events / 4)
	n.judge("what rsyslogd wrote", n.shipped(n.src.last), n.all())
}

// What copytruncate loses: what is written between the copy and the truncation,
// and nothing else. How much that is, is told, not judged. The table `events` has
// all of it.
func TestCopytruncate(t *testing.T) {
	n := newNode(t)
	n.configureLogrotate("copytruncate")
	n.startRsyslog()
	n.writeAndRotate()
	inFiles := n.readFiles()
	lost := n.missing(inFiles.seqs)
	runs := 0
	for i, seq := range lost {
		if i == 0 || lost[i-1] != seq-1 {
			runs++
		}
	}
	if runs > rotations {
		t.Errorf("lost events are in %d places, more than the %d rotations", runs, rotations)
	}
	if len(inFiles.broken) > rotations {
		t.Errorf("%d broken lines in the files: %q", len(inFiles.broken), inFiles.broken)
	}
	shipped := n.shipped(0)
	t.Logf("copytruncate, %d events, %d rotations at full rate: the files lack %d events in %d places, and %d lines are broken there; "+
		"rsyslogd lacks %d, repeats %d, and wrote %d broken lines",
		n.src.last, rotations, len(lost), runs, len(inFiles.broken),
		len(n.missing(shipped.seqs)), len(shipped.seqs)-len(unique(shipped.seqs)), len(shipped.broken))
}

// node is a log in a directory of its own, with its logrotate and rsyslogd.
type node struct {
	t       *testing.T
	dir     string
	log     string // events.jsonl
	out     string // what rsyslogd writes
	src     *source
	export  *outbox.Log
	rsyslog *exec.Cmd
}

func newNode(t *testing.T) *node {
	if os.Geteuid() != 0 {
		t.Fatal("logrotate and rsyslogd are run as root here, as on a node")
	}
	for tool, pkg := range map[string]string{"logrotate": "logrotate", "rsyslogd": "rsyslog"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v; apt-get install %s", err, pkg)
		}
	}
	dir := t.TempDir()
	n := &node{t: t, dir: dir, log: filepath.Join(dir, "log", "events.jsonl"), out: filepath.Join(dir, "out.log"), src: &source{}}
	n.export = outbox.New(n.log, n.src, outbox.Options{LogID: logID, Fsync: true})
	for _, d := range []string{"log", "work"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// installed is a file of conf/ with its paths made this node's.
func (n *node) installed(name string) string {
	text, err := os.ReadFile(filepath.Join("../../conf", name))
	if err != nil {
		n.t.Fatal(err)
	}
	if !bytes.Contains(text, []byte(installedLog)) {
		n.t.Fatalf("%s does not name %s", name, installedLog)
	}
	return strings.NewReplacer(installedLog, n.log, installedOut, n.out).Replace(string(text))
}

func (n *node) put(name, text string) string {
	path := filepath.Join(n.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	return path
}

func (n *node) configureLogrotate(inPlaceOfNocreate string) {
	text := n.installed("logrotate/nri-resctrl")
	if inPlaceOfNocreate != "" {
		changed := strings.Replace(text, "\tnocreate", "\t"+inPlaceOfNocreate, 1)
		if changed == text {
			n.t.Fatal("the snippet has no nocreate")
		}
		text = changed
	}
	n.put("logrotate.conf", text)
}

func (n *node) rotate() error {
	out, err := exec.Command("logrotate", "-f", "-s", filepath.Join(n.dir, "logrotate.state"), filepath.Join(n.dir, "logrotate.conf")).CombinedOutput()
	if err != nil || len(out) > 0 {
		return fmt.Errorf("logrotate: %v: %s", err, out)
	}
	return nil
}

func (n *node) startRsyslog() {
	n.t.Helper()
	conf := n.put("rsyslog.conf", fmt.Sprintf("global(workDirectory=%q)\n%s", filepath.Join(n.dir, "work"), n.installed("rsyslog/nri-resctrl.conf")))
	if out, err := exec.Command("rsyslogd", "-N1", "-f", conf).CombinedOutput(); err != nil {
		n.t.Fatalf("rsyslogd does not take its configuration: %v\n%s", err, out)
	}
	n.rsyslog = exec.Command("rsyslogd", "-n", "-f", conf, "-i", filepath.Join(n.dir, "rsyslog.pid"))
	n.rsyslog.Stderr = n.t.Output()
	n.rsyslog.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.rsyslog.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(n.stopRsyslog)
}

func (n *node) stopRsyslog() {
	if n.rsyslog == nil {
		return
	}
	if err := n.rsyslog.Process.Signal(syscall.SIGTERM); err != nil {
		n.t.Error(err)
	}
	if err := n.rsyslog.Wait(); err != nil {
		n.t.Errorf("rsyslogd: %v", err)
	}
	n.rsyslog = nil
}

// write appends events as fast as the export goes, as installed: each append
// waits for the disk.
func (n *node) write(count int64) {
	n.t.Helper()
	for end := n.src.last + count; n.src.last < end; {
		n.src.last = min(n.src.last+batch, end)
		if err := n.export.Export(context.Background()); err != nil {
			n.t.Fatal(err)
		}
	}
}

// writeAndRotate writes the events, and more until the log was rotated often
// enough; the writer waits for nobody. Rotations are spread over the events, and
// each comes after rsyslogd has noticed the one before: it follows one at a time.
func (n *node) writeAndRotate() {
	n.t.Helper()
	const each, most = events / (rotations + 1), 10 * events
	begin := make(chan struct{}, 1)
	done := make(chan error, rotations)
	go func() {
		defer close(done)
		for range begin {
			done <- n.rotate()
		}
	}()
	started, begun, ended, meanwhile := time.Now(), int64(0), int64(0), 0
	for n.src.last < events || ended < rotations {
		if n.src.last > most {
			n.t.Fatalf("%d rotations while %d events were written", ended, most)
		}
		n.write(batch)
		if begun > ended {
			meanwhile++
			select {
			case err := <-done:
				if ended++; err != nil {
					n.t.Fatal(err)
				}
			default:
			}
		} else if begun < rotations && n.src.last >= (begun+1)*each && n.noticed() {
			begun++
			begin <- struct{}{}
		}
	}
	close(begin)
	n.t.Logf("%d events in %s, %d appends of %d while logrotate ran", n.src.last, time.Since(started).Round(time.Millisecond), meanwhile, batch)
	if meanwhile < rotations {
		n.t.Errorf("only %d appends while logrotate ran", meanwhile)
	}
}

// noticed says whether rsyslogd has the present file open.
func (n *node) noticed() bool {
	present, err := os.Stat(n.log)
	if err != nil {
		return false
	}
	dir := fmt.Sprintf("/proc/%d/fd", n.rsyslog.Process.Pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		n.t.Fatal(err)
	}
	return slices.ContainsFunc(fds, func(fd os.DirEntry) bool {
		st, err := os.Stat(filepath.Join(dir, fd.Name()))
		return err == nil && os.SameFile(st, present)
	})
}

// found is what a reader of lines has.
type found struct {
	seqs   []int64
	broken []string
}

func (f *found) read(t *testing.T, r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Log string `json:"log"`
			Seq int64  `json:"seq"`
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Log != logID || lines.Text() != line(e.Seq) {
			f.broken = append(f.broken, lines.Text())
			continue
		}
		f.seqs = append(f.seqs, e.Seq)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// readFiles reads the log's files, the oldest first.
func (n *node) readFiles() *found {
	f := &found{}
	for i := rotations; i >= 0; i-- {
		name := n.log
		if i > 0 {
			name += "." + strconv.Itoa(i)
		}
		file, err := os.Open(name)
		if os.IsNotExist(err) && i > 1 {
			file, err = os.Open(name + ".gz")
			name += ".gz"
		}
		if err != nil {
			n.t.Fatal(err)
		}
		var r io.Reader = file
		if strings.HasSuffix(name, ".gz") {
			if r, err = gzip.NewReader(file); err != nil {
				n.t.Fatal(err)
			}
		}
		f.read(n.t, r)
		file.Close()
	}
	return f
}

// shipped waits until rsyslogd has written want lines and a moment more, or has
// written nothing for long; for 0, only that.
func (n *node) shipped(want int64) *found {
	n.t.Helper()
	const moment, long = time.Second, 20 * time.Second
	size, since := int64(-1), time.Now()
	for enough := false; ; time.Sleep(50 * time.Millisecond) { // for rsyslogd, a process
		if st, err := os.Stat(n.out); err == nil && st.Size() != size {
			size, since = st.Size(), time.Now()
			enough = want > 0 && n.lines() >= want
			if enough && want < n.src.last {
				break
			}
		}
		if calm := time.Since(since); calm > long || enough && calm > moment {
			break
		}
	}
	file, err := os.Open(n.out)
	if err != nil {
		n.t.Fatal(err)
	}
	defer file.Close()
	f := &found{}
	f.read(n.t, file)
	return f
}

func (n *node) lines() int64 {
	text, err := os.ReadFile(n.out)
	if err != nil {
		return 0
	}
	return int64(bytes.Count(text, []byte("\n")))
}

func (n *node) all() []int64 {
	all := make([]int64, n.src.last)
	for i := range all {
		all[i] = int64(i) + 1
	}
	return all
}

// judge wants every event once, in order, and nothing else.
func (n *node) judge(what string, got *found, want []int64) {
	n.t.Helper()
	if len(got.broken) > 0 {
		n.t.Errorf("%s: %d broken lines, the first: %q", what, len(got.broken), got.broken[0])
	}
	if slices.Equal(got.seqs, want) {
		return
	}
	lost := n.missing(got.seqs)
	n.t.Errorf("%s: %d events, %d of them different, want %d; missing: %v", what, len(got.seqs), len(unique(got.seqs)), len(want), lost[:min(len(lost), 20)])
	if slices.Equal(unique(got.seqs), want) && len(got.seqs) == len(want) {
		n.t.Errorf("%s: not in order", what)
	}
}

func unique(seqs []int64) []int64 { return slices.Compact(slices.Sorted(slices.Values(seqs))) }

func (n *node) missing(seqs []int64) []int64 {
	var lost []int64
	next := int64(1)
	for _, seq := range append(unique(seqs), n.src.last+1) {
		for ; next < seq; next++ {
			lost = append(lost, next)
		}
		next = seq + 1
	}
	return lost
}
