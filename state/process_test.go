package state

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// childEnv tells a copy of this test's binary that it is a process beside us,
// and what to do: "mode path".
const childEnv = "STATE_TEST_CHILD"

// child starts this test again as another process.
func child(t *testing.T, test, mode, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), childEnv+"="+mode+" "+path)
	return cmd
}

func inChild() (mode, path string, ok bool) { return strings.Cut(os.Getenv(childEnv), " ") }

// Applier and job use one file at once, while people read it.
func TestTwoProcessesCommit(t *testing.T) {
	t.Parallel()
	const rounds = 150
	if mode, path, ok := inChild(); ok {
		s := openAt(t, path, Options{})
		for i := range rounds {
			p := podOf(fmt.Sprint(mode, i), 1)
			err := ErrBusy
			for errors.Is(err, ErrBusy) { // which writer.lock spares the programs
				err = s.Intend(context.Background(), p.Pod)
			}
			if err != nil {
				t.Fatal(err)
			}
			b := batchOf(p)
			b.Events = []SourcedEvent{eventOf(p)}
			mustCommit(t, s, b)
			mustCommit(t, s, Batch{Events: b.Events}) // which reads before it writes
			wantPod(t, s, p)
		}
		return
	}
	path := filepath.Join(t.TempDir(), "state.db")
	var wg sync.WaitGroup
	done := make(chan struct{})
	for _, mode := range []string{"applier", "job"} { // both also race to make the file
		wg.Go(func() {
			if out, err := child(t, "TestTwoProcessesCommit", mode, path).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", mode, err, out)
			}
		})
	}
	var reader sync.WaitGroup
	reader.Go(func() { readOn(t, path, done) })
	wg.Wait()
	close(done)
	reader.Wait()
	s := openAt(t, path, Options{})
	seen := map[string]int{}
	all := lines(t, s)
	for i, line := range all {
		if !strings.Contains(line, fmt.Sprintf(`"seq":%d,`, i+1)) {
			t.Fatalf("line %d: %s", i+1, line)
		}
		_, rest, _ := strings.Cut(line, `"pod_uid":"`)
		uid, _, _ := strings.Cut(rest, `"`)
		seen[uid]++
	}
	if len(all) != 4*rounds || len(seen) != 2*rounds {
		t.Errorf("%d events of %d pods, want %d of %d", len(all), len(seen), 4*rounds, 2*rounds)
	}
}

// readOn is a person who asks again and again, until done.
func readOn(t *testing.T, path string, done <-chan struct{}) {
	sqlite, err := exec.LookPath("sqlite3")
	if err != nil {
		return
	}
	for {
		select {
		case <-done:
			return
		default:
		}
		out, err := exec.Command(sqlite, "-readonly", "-cmd", ".timeout 5000", path, "SELECT count(*) FROM events").CombinedOutput()
		if err != nil && !strings.Contains(string(out), "no such table") && !strings.Contains(string(out), "unable to open") {
			t.Errorf("sqlite3: %v: %s", err, out)
		}
	}
}

// What Intend and Commit returned from survives a kill -9 at any moment.
func TestKilledProcessLosesNothing(t *testing.T) {
	t.Parallel()
	if _, path, ok := inChild(); ok {
		s := openAt(t, path, Options{})
		for i := 0; ; i++ {
			p := podOf(fmt.Sprint(os.Getpid(), "-", i), 2)
			if err := s.Intend(context.Background(), p.Pod); err != nil {
				t.Fatal(err)
			}
			fmt.Println("intended", p.Pod.UID)
			b := batchOf(p)
			b.Events = []SourcedEvent{eventOf(p)}
			mustCommit(t, s, b)
			fmt.Println("committed", p.Pod.UID)
		}
	}
	path := filepath.Join(t.TempDir(), "state.db")
	events := 0
	for round := range 8 {
		told, committed := runAndKill(t, path, 5+round*7)
		s := openAt(t, path, Options{})
		for uid, what := range told {
			p := mustPod(t, s, uid)
			if p == nil || (what == "committed" && len(p.Containers) != 2) {
				t.Fatalf("round %d: pod %s was %s, state has %+v", round, uid, what, p)
			}
		}
		got := count(t, s, "SELECT count(*) FROM events")
		if last := count(t, s, "SELECT max(seq) FROM events"); last != got {
			t.Fatalf("round %d: %d events, the last has seq %d", round, got, last)
		}
		if got != events+committed && got != events+committed+1 { // one may be committed and not told
			t.Fatalf("round %d: %d events, %d before and %d committed", round, got, events, committed)
		}
		events = got
		if damaged := asides(t, path); len(damaged) != 0 {
			t.Fatalf("round %d: %q", round, damaged)
		}
		s.Close()
	}
}

// Commit fsyncs the WAL, Intend and SetMeta do not: strace counts it, as the
// kernel sees it, for 10 calls each. Measured with SQLite 3.53 on ext4: Commit
// 1 fdatasync, Intend 0.
func TestWhatIsSynced(t *testing.T) {
	t.Parallel()
	const n = 10
	if mode, path, ok := inChild(); ok {
		s := openAt(t, path, Options{})
		fill(t, s) // the WAL is there, and its first sync is behind us
		marker(t, path)
		for i := range n {
			var err error
			switch mode {
			case "Commit":
				err = s.Commit(context.Background(), batchOf(podOf(fmt.Sprint("u", i), 1)))
			case "Intend":
				err = s.Intend(context.Background(), podOf(fmt.Sprint("u", i), 0).Pod)
			case "SetMeta":
				err = s.SetPosition(context.Background(), int64(i), 1, 1, 1)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		marker(t, path)
		return
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("no strace (apt-get install strace)")
	}
	for mode, want := range map[string]int{"Commit": n, "Intend": 0, "SetMeta": 0} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			trace := filepath.Join(dir, "trace")
			path := filepath.Join(dir, "state.db")
			cmd := exec.Command(strace, "-f", "-y", "-o", trace, "-e", "trace=fsync,fdatasync,sync_file_range,mkdir,mkdirat",
				os.Args[0], "-test.run=^TestWhatIsSynced$")
			cmd.Env = append(os.Environ(), childEnv+"="+mode+" "+path)
			if out, err := cmd.CombinedOutput(); err != nil {
				if strings.Contains(string(out), "ptrace") {
					t.Skipf("strace is not allowed here: %s", out)
				}
				t.Fatalf("%v\n%s", err, out)
			}
			b, err := os.ReadFile(trace)
			if err != nil {
				t.Fatal(err)
			}
			parts := strings.Split(string(b), "state.db.marker")
			if len(parts) < 3 {
				t.Fatalf("no markers in the trace:\n%s", b)
			}
			if got := strings.Count(parts[1], "state.db-wal"); got != want {
				t.Errorf("%d syncs of the WAL in %d calls, want %d:\n%s", got, n, want, parts[1])
			}
			if strings.Contains(parts[1], "sync(") != (want > 0) {
				t.Errorf("other syncs:\n%s", parts[1])
			}
		})
	}
}

// runAndKill starts a child, lets it tell of some pods, and kills it. It gives
// the last that the child told of each pod, and how many were committed.
func runAndKill(t *testing.T, path string, pods int) (told map[string]string, committed int) {
	t.Helper()
	cmd := child(t, "TestKilledProcessLosesNothing", "run", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	told = map[string]string{}
	killed := false
	for scanner := bufio.NewScanner(out); scanner.Scan(); { // to what it told last
		f := strings.Fields(scanner.Text())
		if len(f) != 2 {
			t.Errorf("child says %q", scanner.Text())
		} else {
			told[f[1]] = f[0]
			if f[0] == "committed" {
				committed++
			}
		}
		if !killed && (len(told) > pods || t.Failed()) {
			killed = true
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || !killed {
		t.Fatalf("the child ended by itself: %v", err)
	}
	return told, committed
}

func count(t *testing.T, s *Store, query string) int {
	t.Helper()
	got, err := s.texts(context.Background(), query)
	if err != nil || len(got) != 1 {
		t.Fatalf("%s: %q, %v", query, got, err)
	}
	n, err := strconv.Atoi(got[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// marker leaves a system call in the trace.
func marker(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(path+".marker", 0o700); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
}
