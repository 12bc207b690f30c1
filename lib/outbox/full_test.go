package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/outbox"
	"github.com/nri-resctrl/nri-resctrl/state"
)

// On a file system that really is full, again and again, under the log alone
// or under database and log: each event that was committed is in the log once,
// none is broken, and the order is right.
func TestDiskFullAgainAndAgain(t *testing.T) {
	t.Parallel()
	const env = "OUTBOX_TEST_FULL"
	if dir := os.Getenv(env); dir != "" {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
			t.Fatal(err)
		}
		fillAndDrain(t, t.TempDir(), dir)
		fillAndDrain(t, dir, dir)
		selfHelp(t, dir)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestDiskFullAgainAndAgain$", "-test.v")
	cmd.Env = append(os.Environ(), env+"="+t.TempDir())
	// A mount of its own, gone with the process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("a mount namespace is not allowed here: %v", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func fillAndDrain(t *testing.T, dbDir, dir string) {
	ctx := context.Background()
	path := filepath.Join(dir, "events.jsonl")
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	s, err := state.Open(filepath.Join(dbDir, "state.db"), state.Options{Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var logged bytes.Buffer
	log := outbox.New(path, s, outbox.Options{LogID: s.LogID(), Fsync: true, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	var committed []string
	refused, late := 0, 0
	for round := range 12 {
		ballast := leave(t, dir, int64(round)*4096)
		for i := range 40 {
			if i == 20 { // room again
				if err := os.Remove(ballast); err != nil {
					t.Fatal(err)
				}
			}
			e := event(len(committed) + 1)
			e.PodUID = fmt.Sprintf("%d-%d-%s", round, i, strings.Repeat("u", 50*i))
			switch err := s.Commit(ctx, state.Batch{Events: []state.SourcedEvent{e}}); {
			case err == nil:
				committed = append(committed, e.PodUID)
			case errors.Is(err, state.ErrUnwritable) && i < 20:
				refused++
			default:
				t.Fatal(err)
			}
			if err := log.Export(ctx); err != nil {
				if i >= 20 {
					t.Fatal(err)
				}
				late++
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(got), "\n"), "\n")
		if len(committed) > 0 && len(lines) != len(committed) {
			t.Fatalf("round %d: %d lines, %d committed; %s", round, len(lines), len(committed), logged.String())
		}
		for i, uid := range committed {
			if !strings.Contains(lines[i], fmt.Sprintf(`"seq":%d,`, i+1)) || !strings.Contains(lines[i], `"pod_uid":"`+uid+`"`) || !strings.HasSuffix(lines[i], "}") {
				t.Fatalf("round %d: line %d is %q, want pod %s", round, i+1, lines[i], uid)
			}
		}
	}
	torn := strings.Count(logged.String(), "completed a line")
	t.Logf("%d committed, %d refused, %d exports late, %d torn lines completed", len(committed), refused, late, torn)
	if late == 0 || (dbDir == dir && refused == 0) || (dbDir != dir && torn == 0) {
		t.Error("the disk was never full where it matters")
	}
}

// selfHelp: on a full disk the WAL makes room by moving what it holds, page
// for page, into the database that has those pages already.
func selfHelp(t *testing.T, dir string) {
	s, err := state.Open(filepath.Join(dir, "state.db"), state.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	note := func(i int) error {
		return s.Commit(context.Background(), state.Batch{Meta: map[string]string{"x": fmt.Sprint(i)}})
	}
	for i := range 50 {
		if err := note(i); err != nil {
			t.Fatal(err)
		}
	}
	defer os.Remove(leave(t, dir, 0))
	for i := range 500 {
		if err := note(i); err != nil {
			t.Fatalf("commit %d to a full disk: %v", i, err)
		}
	}
}

// leave fills a directory's file system but for some bytes, and names the
// file that does it.
func leave(t *testing.T, dir string, bytes int64) string {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	if err := os.WriteFile(name, make([]byte, 40<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("ballast: %v", err)
	}
	st, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, max(st.Size()-bytes, 0)); err != nil {
		t.Fatal(err)
	}
	return name
}
