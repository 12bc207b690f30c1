package resctrl_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/resctrl"
)

func groupCases() []suiteCase {
	return []suiteCase{
		{"create, exists, remove", everywhere, caseCreate},
		{"paths that are not ours", everywhere, caseNotOurs},
		{"locate and list", controls, caseLocate},
		{"RMIDs run out", everywhere, caseExhaustion},
		{"words of another command", everywhere, caseStaleWords},
		{"control group is gone", controls, caseNoControlGroup},
		{"not mounted", everywhere, caseNotMounted},
		{"no monitoring", noMonitor, caseUnsupported},
		{"errno to reason", simOnly, caseReasons},
		{"waits for the lock", everywhere, caseLock},
		{"usage", everywhere, caseUsage},
	}
}

func caseCreate(w *world) {
	ctx := context.Background()
	path := w.group("", "pod_a")
	if ok, err := w.fs.Exists(path); ok || err != nil {
		w.Fatalf("Exists before: %v, %v", ok, err)
	}
	w.create(path)
	if ok, err := w.fs.Exists(path); !ok || err != nil {
		w.Fatalf("Exists after: %v, %v", ok, err)
	}
	created, err := w.fs.Create(ctx, path)
	if created || err != nil {
		w.Fatalf("Create again: %v, %v", created, err)
	}
	if !w.exists(path) {
		w.Fatal("the kernel has no group")
	}
	w.must(w.fs.Remove(ctx, path))
	if w.exists(path) {
		w.Fatal("the group is there still")
	}
	w.must(w.fs.Remove(ctx, path))
	if w.guard.locks != 4 {
		w.Errorf("%d locks for four changes", w.guard.locks)
	}
}

func caseNotOurs(w *world) {
	ctx := context.Background()
	long := strings.Repeat("x", 300)
	for _, path := range []string{
		"", "/", w.root, w.root + "/", w.root + "/mon_groups", w.root + "/pod_a", w.root + "/mon_groups/other",
		w.root + "/mon_groups/pod_", w.root + "/mon_groups/pod_a/", w.root + "/mon_groups/../pod_a",
		w.root + "/mon_groups/pod_a/../pod_b", w.root + "/mon_groups//pod_a", w.root + "/mon_groups/pod_a/x",
		w.root + "/mon_groups/pod_a/mon_groups/pod_b", w.root + "/info/mon_groups/pod_a",
		w.root + "/mon_groups/mon_groups/pod_a", w.root + "/mon_data/mon_groups/pod_a",
		w.root + "/g1/mon_data/pod_a", w.root + "/mon_groups/pod_a\n", w.root + "/mon_groups/pod_a\x00",
		w.root + "x/mon_groups/pod_a", "mon_groups/pod_a", "/etc/pod_a", w.root + "/mon_groups/Pod_" + long,
	} {
		_, err := w.fs.Create(ctx, path)
		w.wantReason(err, "io", resctrl.ErrNotOurs)
		w.wantReason(w.fs.Remove(ctx, path), "io", resctrl.ErrNotOurs)
		_, err = w.fs.Move(ctx, w.group("", "pod_a"), path)
		w.wantReason(err, "io", resctrl.ErrNotOurs)
		_, err = w.fs.Move(ctx, path, w.group("", "pod_a"))
		w.wantReason(err, "io", resctrl.ErrNotOurs)
		_, err = w.fs.Exists(path)
		w.wantReason(err, "io", resctrl.ErrNotOurs)
		_, err = w.fs.Assign(ctx, path, w.tasks())
		w.wantReason(err, "io", resctrl.ErrNotOurs)
	}
	if w.guard.locks != 0 || w.guard.calls != nil || w.guard.writes != nil {
		w.Errorf("something was done: %d locks, %v, %v", w.guard.locks, w.guard.calls, w.guard.writes)
	}
	none := resctrl.New(resctrl.Options{Root: w.root, Simulated: w.simulated, OS: w.guard})
	_, err := none.Create(ctx, w.group("", "pod_a"))
	w.wantReason(err, "io", resctrl.ErrNotOurs)
}

func caseLocate(w *world) {
	w.others(w.group("g1", ""))
	w.others(w.group("pod_g2", ""))
	want := []string{w.group("", "pod_a"), w.group("g1", "pod_a"), w.group("pod_g2", "pod_a")}
	for _, path := range want {
		w.create(path)
	}
	w.others(w.group("g1", "other"))
	got, err := w.fs.Locate("pod_a")
	w.must(err)
	if !slices.Equal(got, want) {
		w.Errorf("Locate: %q, want %q", got, want)
	}
	if got, err := w.fs.Locate("pod_b"); got != nil || err != nil {
		w.Errorf("Locate of an absent one: %q, %v", got, err)
	}
	for _, name := range []string{"../mon_groups/pod_a", "pod_a/..", "", "other"} {
		if got, err := w.fs.Locate(name); err == nil {
			w.Errorf("Locate(%q) gave %q", name, got)
		}
	}
	got, err = w.fs.Groups()
	w.must(err)
	if !slices.Equal(got, want) {
		w.Errorf("Groups: %q, want %q", got, want)
	}
}

// fill makes groups until there is no RMID, and gives their number and the error.
func (w *world) fill() (n int, err error) {
	for ; n < 1000; n++ {
		if _, err = w.fs.Create(context.Background(), w.group("", fmt.Sprintf("pod_%d", n))); err != nil {
			return n, err
		}
	}
	w.Fatal("a thousand groups")
	return 0, nil
}

func caseExhaustion(w *world) {
	w.settle()
	n, err := w.fill()
	if n != w.rmids-1 {
		w.Errorf("%d groups of %d RMIDs", n, w.rmids)
	}
	w.wantReason(err, "capacity", unix.ENOSPC)
	// Twice: the words of the first failure stand in last_cmd_status still.
	for range 2 {
		var e *resctrl.Error
		if _, err = w.fill(); !errors.As(err, &e) || e.Kernel != "Out of RMIDs" {
			w.Errorf("kernel's words %+v", e)
		}
		if got := err.Error(); !strings.Contains(got, e.Path) || !strings.Contains(got, "ENOSPC") ||
			!strings.Contains(got, "Out of RMIDs") || e.Path != w.group("", fmt.Sprintf("pod_%d", n)) {
			w.Errorf("text: %s", got)
		}
	}
	w.must(w.fs.Remove(context.Background(), w.group("", "pod_0")))
	_, err = w.fs.Create(context.Background(), w.group("", "pod_new"))
	if w.v61 {
		w.must(err) // nothing ran in it: 6.1 gives it out at once
		return
	}
	w.wantReason(err, "capacity", unix.EBUSY)
	w.create(w.group("", "pod_new"))
}

func caseStaleWords(w *world) {
	const words = "Task list parsing error pid garbage"
	stale := func() {
		_ = w.raw.WriteFile(filepath.Join(w.root, "tasks"), []byte("garbage"))
	}
	w.settle()
	if _, err := w.fill(); resctrl.ReasonOf(err) != "capacity" {
		w.Fatal(err)
	}
	stale()
	if !w.v61 && w.status() != words {
		w.Fatalf("no stale words: %q", w.status())
	}
	_, err := w.fs.Create(context.Background(), w.group("", "pod_more"))
	w.wantReason(err, "capacity", unix.ENOSPC)
	var e *resctrl.Error
	if !errors.As(err, &e) || e.Kernel != "Out of RMIDs" {
		w.Errorf("kernel's words %q", e.Kernel)
	}
	stale()
	_, err = w.fs.Assign(context.Background(), w.group("", "pod_none"), w.tasks())
	w.wantReason(err, "io", resctrl.ErrGroupGone)
	if strings.Contains(err.Error(), "garbage") {
		w.Errorf("words of another command: %v", err)
	}
}

func caseNoControlGroup(w *world) {
	_ = w.raw.WriteFile(filepath.Join(w.root, "tasks"), []byte("garbage"))
	_, err := w.fs.Create(context.Background(), w.group("g1", "pod_a"))
	w.wantReason(err, "io", resctrl.ErrControlGroupGone)
	var e *resctrl.Error
	if !errors.As(err, &e) || e.Kernel != "" {
		w.Errorf("kernel's words %q", e.Kernel)
	}
}

func caseNotMounted(w *world) {
	ctx := context.Background()
	path := w.group("", "pod_a")
	w.create(path)
	w.must(w.fs.Mounted())
	w.mounted(false)
	defer func() {
		if w.fs.Mounted() != nil {
			w.mounted(true)
		}
	}()
	w.wantReason(w.fs.Mounted(), "not_mounted", nil)
	_, err := w.fs.Create(ctx, path)
	w.wantReason(err, "not_mounted", nil)
	if !w.simulated && !strings.Contains(err.Error(), "mount -t resctrl resctrl "+w.root) {
		w.Errorf("it does not say what to do: %v", err)
	}
	_, err = w.fs.Exists(path)
	w.wantReason(err, "not_mounted", nil)
	_, err = w.fs.Assign(ctx, path, w.tasks())
	w.wantReason(err, "not_mounted", nil)
	from, err := w.fs.Move(ctx, path, w.group("", "pod_b"))
	w.wantReason(err, "not_mounted", nil)
	if from != path {
		w.Errorf("moved to %q", from)
	}
	_, err = w.fs.Locate("pod_a")
	w.wantReason(err, "not_mounted", nil)
	_, err = w.fs.Groups()
	w.wantReason(err, "not_mounted", nil)
	_, err = w.fs.Usage()
	w.wantReason(err, "not_mounted", nil)
	_, err = w.fs.Cleanup(ctx, func(string) bool { return false })
	w.wantReason(err, "not_mounted", nil)
	w.must(w.fs.Remove(ctx, path)) // umount has dropped it
	if w.simulated {
		w.wantReason(w.fs.Mount(ctx), "not_mounted", nil)
		return
	}
	w.must(w.fs.Mount(ctx))
	w.must(w.fs.Mount(ctx))
	w.must(w.fs.Mounted())
	if w.exists(path) {
		w.Error("the group is there after umount and mount")
	}
}

func caseUnsupported(w *world) {
	ctx := context.Background()
	w.wantReason(w.fs.Mounted(), "unsupported", nil)
	w.wantReason(w.fs.Mount(ctx), "unsupported", nil)
	_, err := w.fs.Create(ctx, w.group("", "pod_a"))
	w.wantReason(err, "unsupported", nil)
	if ok, err := w.fs.Exists(w.group("", "pod_a")); ok || err != nil {
		w.Errorf("Exists: %v, %v", ok, err)
	}
	_, err = w.fs.Usage()
	w.wantReason(err, "unsupported", nil)
	w.must(w.fs.Remove(ctx, w.group("", "pod_a")))
	got, err := w.fs.Groups()
	if got != nil || err != nil {
		w.Errorf("Groups: %v, %v", got, err)
	}
	r, err := w.fs.Cleanup(ctx, func(string) bool { return false })
	if r != (resctrl.CleanupReport{}) || err != nil {
		w.Errorf("Cleanup: %+v, %v", r, err)
	}
}

func caseReasons(w *world) {
	path := w.group("", "pod_a")
	for _, c := range []struct {
		errno  unix.Errno
		reason string
	}{
		{unix.ENOSPC, "capacity"}, {unix.EBUSY, "capacity"}, {unix.EACCES, "permission"}, {unix.EPERM, "permission"},
		{unix.EROFS, "permission"}, {unix.EIO, "io"}, {unix.ENOMEM, "io"}, {unix.EINVAL, "io"}, {unix.ENAMETOOLONG, "io"},
	} {
		w.guard.before["mkdir"] = func(string) error { return c.errno }
		_, err := w.fs.Create(context.Background(), path)
		w.wantReason(err, c.reason, c.errno)
		w.guard.before["rmdir"] = func(string) error { return c.errno }
		err = w.fs.Remove(context.Background(), path)
		if c.reason == "capacity" {
			c.reason = "io" // rmdir takes no RMID
		}
		w.wantReason(err, c.reason, c.errno)
	}
	w.guard.reset()
	if got := resctrl.ReasonOf(nil); got != "" {
		w.Errorf("reason of nil: %q", got)
	}
	if got := resctrl.ReasonOf(fmt.Errorf("x: %w", unix.EPERM)); got != "permission" {
		w.Errorf("reason of EPERM: %q", got)
	}
}

// caseLock: while another tool has the lock, nothing is changed, no descriptor
// is open on the root, and the end of ctx ends the wait.
func caseLock(w *world) {
	unlock, err := w.raw.Lock(context.Background(), w.root)
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := w.fs.Create(ctx, w.group("", "pod_a"))
		done <- err
	}()
	select {
	case err := <-done:
		w.Fatalf("created in spite of the lock: %v", err)
	default:
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		w.Errorf("the wait ended with %v", err)
	}
	if w.exists(w.group("", "pod_a")) {
		w.Error("the group was made")
	}
	w.fs.SetLockWait(time.Millisecond)
	for range 2 {
		_, err := w.fs.Create(context.Background(), w.group("", "pod_a"))
		if resctrl.ReasonOf(err) != "io" || !strings.Contains(err.Error(), "another program holds the lock") {
			w.Errorf("one that holds the lock for ever: %v", err)
		}
	}
	w.fs.SetLockWait(time.Minute)
	go func() {
		_, err := w.fs.Create(context.Background(), w.group("", "pod_a"))
		done <- err
	}()
	unlock()
	if err := <-done; err != nil && !errors.Is(err, unix.EBUSY) {
		w.Error(err)
	}
}

func caseUsage(w *world) {
	u, err := w.fs.Usage()
	w.must(err)
	if want := (resctrl.Usage{NumRMIDs: w.rmids, Used: 1}); u != want {
		w.Errorf("%+v, want %+v", u, want)
	}
	w.create(w.group("", "pod_a"))
	w.others(w.group("", "other"))
	if u, err = w.fs.Usage(); err != nil || u.Used != 3 {
		w.Errorf("with two groups: %+v, %v", u, err)
	}
	w.settleAfter(func() {
		if n, _ := w.fill(); n+3 != w.rmids {
			w.Errorf("%d more groups of %d RMIDs with 3 used", n, w.rmids)
		}
	})
}

// settleAfter runs do when no RMID is in limbo any more.
func (w *world) settleAfter(do func()) {
	for range 30 {
		w.tick()
	}
	do()
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	e := &resctrl.Error{Op: "create group", Path: "/r/mon_groups/pod_a", Reason: "capacity",
		Kernel: "Out of RMIDs", Hint: "remove one", Err: unix.ENOSPC}
	const want = "create group /r/mon_groups/pod_a: ENOSPC no space left on device (the kernel says: Out of RMIDs); remove one"
	if got := e.Error(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
