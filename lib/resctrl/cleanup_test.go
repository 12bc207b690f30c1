package resctrl_test

import (
	"context"
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
)

func cleanupCases() []suiteCase {
	return []suiteCase{
		{"cleanup rules", controls, caseCleanup},
		{"cleanup without control groups", everywhere, caseCleanupPlain},
		{"cleanup races and failures", simOnly, caseCleanupRaces},
	}
}

func caseCleanup(w *world) {
	stay := []string{
		w.group("", "pod_kept"), w.group("", "other"), w.group("g1", ""), w.group("g1", "pod_in"),
		w.group("pod_busy", ""), w.group("pod_busy", "m"),
	}
	leave := []string{w.group("", "pod_b"), w.group("pod_empty", "")}
	for _, path := range append([]string{w.group("g1", ""), w.group("pod_busy", "")}, leave...) {
		w.others(path)
	}
	for _, path := range stay {
		if !w.exists(path) {
			w.others(path)
		}
	}
	pid, in := w.procs.start(), w.procs.start()
	w.procs.put(pid, "pod_busy|") // a control group whose tasks are all in a group of its own
	w.procs.put(pid, "pod_busy|m")
	w.procs.put(in, "|pod_b") // tasks do not keep a monitoring group
	w.guard.reset()
	r, err := w.fs.Cleanup(context.Background(), func(path string) bool { return path == w.group("", "pod_kept") })
	w.must(err)
	if want := (resctrl.CleanupReport{Removed: 2, NotOurs: 3}); r != want {
		w.Errorf("%+v, want %+v", r, want)
	}
	for _, path := range stay {
		if !w.exists(path) {
			w.Errorf("%s is gone", path)
		}
	}
	for _, path := range leave {
		if w.exists(path) {
			w.Errorf("%s is there still", path)
		}
	}
	if w.guard.locks != 3 { // two removed, one found busy
		w.Errorf("%d locks", w.guard.locks)
	}
	w.wantIn("pod_busy|m", w.procs.list(pid)...)
	w.wantIn("|", w.procs.list(in)...)

	// A control group with our prefix that holds the group of a present pod stays.
	w.procs.end(pid)
	r, err = w.fs.Cleanup(context.Background(), func(path string) bool {
		return path == w.group("pod_busy", "m") || path == w.group("", "pod_kept")
	})
	w.must(err)
	if r.Removed != 0 || !w.exists(w.group("pod_busy", "m")) {
		w.Errorf("%+v", r)
	}
}

func caseCleanupPlain(w *world) {
	w.create(w.group("", "pod_a"))
	w.others(w.group("", "other"))
	r, err := w.fs.Cleanup(context.Background(), func(string) bool { return false })
	w.must(err)
	if want := (resctrl.CleanupReport{Removed: 1, NotOurs: 1}); r != want {
		w.Errorf("%+v, want %+v", r, want)
	}
}

func caseCleanupRaces(w *world) {
	for _, name := range []string{"pod_a", "pod_b", "pod_c"} {
		w.create(w.group("", name))
	}
	w.guard.before["rmdir"] = func(path string) error {
		switch filepath.Base(path) {
		case "pod_a":
			return w.raw.Rmdir(path) // somebody was first
		case "pod_b":
			return unix.EIO
		}
		return nil
	}
	r, err := w.fs.Cleanup(context.Background(), func(string) bool { return false })
	w.must(err)
	if want := (resctrl.CleanupReport{Removed: 1, Failed: 1, Raced: 1}); r != want {
		w.Errorf("%+v, want %+v", r, want)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	unlock, err := w.raw.Lock(context.Background(), w.root)
	w.must(err)
	defer unlock()
	if _, err := w.fs.Cleanup(ctx, func(string) bool { return false }); !errors.Is(err, context.Canceled) {
		w.Errorf("after ctx ended: %v", err)
	}
}
