package pipeline

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// load lets pods come and go until stop is called, which waits for the end.
func (n *node) load() (stop func()) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	h := &hand{n: n, name: "load"}
	wg.Go(func() {
		for h.err == nil {
			select {
			case <-over:
				return
			default:
				h.move()
			}
		}
	})
	return sync.OnceFunc(func() {
		close(over)
		wg.Wait()
		n.must(h.err)
	})
}

// grown waits until the event log has at least that many bytes.
func (n *node) grown(size int64) {
	n.t.Helper()
	n.until("the event log grows", func() error {
		info, err := os.Stat(n.EventLog())
		if err == nil && info.Size() < size {
			err = fmt.Errorf("%d bytes", info.Size())
		}
		return err
	})
}

// TestRotationByRename: under load, with the applier killed at some of the
// rotations: no line is lost, repeated or broken.
func TestRotationByRename(t *testing.T) {
	t.Parallel()
	n := running(t, noLimbo(), with("watcher.start_barrier", `"20ms"`))
	stop := n.load()
	defer stop()
	var logs []string
	for i := range 6 {
		n.grown(2000)
		old := fmt.Sprintf("%s.%d", n.EventLog(), i)
		if i%3 == 1 {
			n.Applier.Kill()
		}
		n.must(os.Rename(n.EventLog(), old))
		if i%3 == 1 {
			n.startApplier()
		}
		logs = append(logs, old)
	}
	n.grown(1)
	stop()
	n.settle(append(logs, n.EventLog())...)
	info, err := os.Stat(n.EventLog())
	n.must(err)
	if info.Mode() != 0o640 {
		t.Errorf("the new log is %s", info.Mode())
	}
}

// TestRotationByCopyTruncate: under load. The applier is stopped between copy
// and truncate, the moment that logrotate itself names: all else is kept.
func TestRotationByCopyTruncate(t *testing.T) {
	t.Parallel()
	n := running(t, noLimbo(), with("watcher.start_barrier", `"20ms"`))
	stop := n.load()
	defer stop()
	var logs []string
	for i := range 6 {
		n.grown(2000)
		old := fmt.Sprintf("%s.%d", n.EventLog(), i)
		n.Applier.Pause()
		n.must(copyFile(old, n.EventLog()))
		n.must(os.Truncate(n.EventLog(), 0))
		if i%3 == 1 {
			n.Applier.Kill()
			n.startApplier()
		} else {
			n.Applier.Resume()
		}
		logs = append(logs, old)
	}
	n.grown(1)
	stop()
	n.marker()
	n.until("all agree", func() error { return n.agreeJoined(logs) })
}

func copyFile(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	defer dst.Close()
	_, err = io.Copy(dst, src)
	return err
}

// agreeJoined is Agree on the copies and the log put together again: a line
// may have been cut where it was copied, and comes again where the applier was
// killed before it had recorded it and the truncation took it away.
func (n *node) agreeJoined(logs []string) error {
	whole := filepath.Join(n.Dir, "joined.jsonl")
	var text strings.Builder
	for _, l := range append(logs[:len(logs):len(logs)], n.EventLog()) {
		part, err := os.ReadFile(l)
		if err != nil {
			return err
		}
		text.Write(part)
	}
	var once strings.Builder
	seen := map[string]bool{}
	for line := range strings.Lines(text.String()) {
		if !seen[line] {
			once.WriteString(line)
		}
		seen[line] = true
	}
	if err := os.WriteFile(whole, []byte(once.String()), 0o600); err != nil {
		return err
	}
	return n.Agree(whole)
}

// TestDatabaseLost: the state is gone, or garbage: it is rebuilt from the next
// snapshot with another log id, and groups and event log are kept.
func TestDatabaseLost(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"gone", "garbage", "cut"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			n := running(t)
			c := n.container(n.pod("u"), "app")
			n.container(n.pod("v"), "app")
			n.history("v", "Exists 0/0, Exists 1/0, Exists 1/1")
			n.stop(n.Applier)
			before, err := n.Events()
			n.must(err)
			ino := n.inode(n.GroupPath("u"))
			n.must(n.spoil(how))
			n.startApplier()
			n.last("u", "Exists 0/0, Exists 1/1")
			n.last("v", "Exists 0/0, Exists 1/1")
			n.inGroup(c, n.GroupPath("u"), 1)
			if n.inode(n.GroupPath("u")) != ino {
				t.Error("the group was made anew")
			}
			n.marker()
			n.until("all agree", func() error { return n.agreeOnSecond(len(before)) })
			all, err := n.Events()
			n.must(err)
			if len(all) != len(before)+6 || all[len(before)].Log == before[0].Log || all[len(before)].Seq != 1 {
				t.Errorf("%d events before, now %d; the first new one is %s", len(before), len(all), all[len(before)].Line)
			}
			aside, err := filepath.Glob(n.Database() + ".damaged-*")
			n.must(err)
			if (how != "gone") != (len(aside) > 0) {
				t.Errorf("moved aside: %q", aside)
			}
		})
	}
}

// spoil does to the state's file what should never happen to it.
func (n *node) spoil(how string) error {
	switch how {
	case "garbage":
		return os.WriteFile(n.Database(), []byte(strings.Repeat("this is no database\n", 1000)), 0o640)
	case "cut":
		return os.Truncate(n.Database(), 5000)
	}
	files, err := filepath.Glob(n.Database() + "*")
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	return nil
}

// agreeOnSecond is Agree without the events of the lost state.
func (n *node) agreeOnSecond(skip int) error {
	text, err := os.ReadFile(n.EventLog())
	if err != nil {
		return err
	}
	lines := strings.SplitAfterN(string(text), "\n", skip+1)
	second := filepath.Join(n.Dir, "second.jsonl")
	if err := os.WriteFile(second, []byte(lines[skip]), 0o600); err != nil {
		return err
	}
	return n.Agree(second)
}

// TestEventLogUnwritable: events wait in the table while the log cannot be
// written, and none is lost.
func TestEventLogUnwritable(t *testing.T) {
	t.Parallel()
	n := running(t)
	dir := filepath.Dir(n.EventLog())
	n.must(os.RemoveAll(dir))
	n.must(os.WriteFile(dir, []byte("in the way"), 0o600))
	n.container(n.pod("u"), "app")
	n.until("the state has the events", n.hasRow("SELECT count(*) FROM events WHERE reconciled_containers = 1"))
	n.logged(n.Applier, "level=ERROR", 1)
	n.must(os.Remove(dir))
	n.must(os.Mkdir(dir, 0o750))
	n.container(n.pod("v"), "app")
	n.history("u", "Exists 0/0, Exists 1/0, Exists 1/1")
	n.history("v", "Exists 0/0, Exists 1/0, Exists 1/1")
	n.settle()
}
