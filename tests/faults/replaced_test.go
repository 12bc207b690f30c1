//go:build faults

package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// replacement is what somebody puts in the place of a FIFO.
type replacement struct {
	name string
	put  func(path, canary string) error
	says string // what each side says of it; "" is nothing, and it is made anew
}

const stranger = 65534 // nobody

var replacements = []replacement{
	{"a link to a FIFO", func(p, canary string) error {
		return errors.Join(strangersFIFO(canary+".pipe", 0o600, os.Geteuid()), os.Symlink(canary+".pipe", p))
	}, "it is a symbolic link"},
	{"nothing", func(string, string) error { return nil }, ""},
	{"a FIFO of ours", func(p, _ string) error { return syscall.Mkfifo(p, 0o600) }, ""},
	{"a file", func(p, _ string) error { return os.WriteFile(p, []byte("precious"), 0o600) }, "it is a regular file"},
	{"a directory", func(p, _ string) error { return os.Mkdir(p, 0o700) }, "it is a directory"},
	{"a link to a file", func(p, canary string) error { return os.Symlink(canary, p) }, "it is a symbolic link"},
	{"a stranger's FIFO", func(p, _ string) error { return strangersFIFO(p, 0o600, stranger) }, "it belongs to user 65534"},
	{"a FIFO for all", func(p, _ string) error { return strangersFIFO(p, 0o622, os.Geteuid()) }, "it can be used by others"},
}

// strangersFIFO makes a FIFO that is not ours alone.
func strangersFIFO(path string, mode os.FileMode, owner int) error {
	return errors.Join(syscall.Mkfifo(path, 0o600), os.Chmod(path, mode), os.Chown(path, owner, -1))
}

// TestReplaced: a FIFO goes, and something else stands in its place, under the
// running programs. Pods go on; each side tells it once and touches nothing;
// when it is gone, all heals by itself.
func TestReplaced(t *testing.T) {
	for _, which := range []string{"lifecycle.pipe", "ack.pipe"} {
		chosen := replacements
		if !long {
			chosen = replacements[:1:1] // the one that could do most harm
			for _, seed := range seeds {
				chosen = append(chosen, some(replacements[1:], 2, dice(seed, which))...)
			}
		}
		for _, rep := range chosen {
			t.Run(which+"/"+rep.name, func(t *testing.T) {
				t.Parallel()
				replaced(t, which, rep)
			})
		}
	}
}

// some gives n of them.
func some(all []replacement, n int, r *rand.Rand) []replacement {
	all = slices.Clone(all)
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:n]
}

func replaced(t *testing.T, which string, rep replacement) {
	n := running(t, nil)
	path, canary := filepath.Join(n.Dir, "run", which), filepath.Join(n.Dir, "log", "canary")
	n.must(os.WriteFile(canary, []byte("precious"), 0o604))
	n.pod("before")
	n.has(map[string]string{"before": "Exists 1/1"})
	hits := n.hits()

	n.must(os.Remove(path))
	n.must(rep.put(path, canary))
	n.pod("during")
	if rep.says != "" {
		for _, d := range []*world.Daemon{n.Watcher, n.Applier} {
			n.logged(d, rep.says, 1)
		}
		time.Sleep(3 * time.Second) // in which each side tries again, and is to be silent
		for _, d := range []*world.Daemon{n.Watcher, n.Applier} {
			if got := strings.Count(d.Log(), rep.says); got != 1 {
				t.Errorf("%s says %d times that %s", d.Name, got, rep.says)
			}
		}
		n.untouched(path, canary)
		n.must(os.RemoveAll(path))
	}
	n.pod("after")
	n.has(map[string]string{"before": "Exists 1/1", "during": "Exists 1/1", "after": "Exists 1/1"})
	n.until("the FIFO is there", func() error { // at the next heartbeat
		info, err := os.Lstat(path)
		if err == nil && info.Mode() != os.ModeNamedPipe|0o600 {
			err = fmt.Errorf("there is %v", info)
		}
		return err
	})
	// Starts wait for their group again, and find it.
	n.until("a start is acknowledged", func() error {
		id := fmt.Sprint("more-", time.Now().UnixNano())
		box := n.pod(id)
		n.must(n.Runtime.RemovePod(box))
		if now := n.hits(); now <= hits+2 { // those of the pods above, at most
			return fmt.Errorf("%d hits, %d before", now, hits)
		}
		return nil
	})
	if got := n.Runtime.Accepted(); got != 1 {
		t.Errorf("the runtime was connected to %d times", got)
	}
}

// hits is how many starts found their pod's group, as the last heartbeat tells.
func (n *node) hits() int {
	n.t.Helper()
	var s struct {
		Watcher struct {
			Hits int `json:"barrier_hits"`
		}
	}
	n.ctl(&s, "status", "--json")
	return s.Watcher.Hits
}

// untouched: what stands in the place of the FIFO, and what it leads to, is as
// it was put there.
func (n *node) untouched(path, canary string) {
	n.t.Helper()
	for _, p := range []string{path, canary} {
		info, err := os.Lstat(p)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if text, err := os.ReadFile(p); err != nil || string(text) != "precious" {
			n.t.Errorf("%s is now %q, %v", p, text, err)
		}
	}
	for _, p := range []string{path, canary + ".pipe"} {
		info, err := os.Stat(p)
		if err != nil || info.Mode().Type() != os.ModeNamedPipe {
			continue
		}
		f, err := os.OpenFile(p, os.O_RDWR|syscall.O_NONBLOCK, 0)
		n.must(err)
		f.SetReadDeadline(time.Now().Add(time.Millisecond))
		if got, _ := f.Read(make([]byte, 1000)); got > 0 {
			n.t.Errorf("%d bytes were written into %s", got, p)
		}
		f.Close()
	}
	if entries, err := os.ReadDir(path); err == nil && len(entries) > 0 {
		n.t.Errorf("%s has %v", path, entries)
	}
}
