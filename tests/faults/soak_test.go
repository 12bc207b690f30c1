//go:build faults

package faults

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/nrirt"
	"github.com/nri-resctrl/nri-resctrl/tests/sim"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// TestSoak: pods come and go, with the job, the pruning of old events and the
// rotation of the log beside them. Nothing grows: memory, descriptors, rows,
// files; and each pod's end is told, once.
func TestSoak(t *testing.T) {
	lives := 2000
	if long {
		lives = 100_000
	}
	s := newSoak(t)
	dismiss := sync.OnceFunc(s.hire(hands))
	defer dismiss()
	const chunks = 100
	var at []usage
	for i := range chunks {
		for range lives / chunks {
			s.todo.Add(1)
			s.serial++
			s.lives <- s.serial
		}
		s.rotate()
		s.age()
		r, err := s.Retry() // beside the lives, as the timer has it
		s.must(err)
		if r.Code != 0 {
			t.Fatalf("the job: %d, %s", r.Code, r.Err)
		}
		s.todo.Wait()
		if t.Failed() {
			t.Fatalf("%s\n%s", s.Watcher.Log(), s.Applier.Log())
		}
		if i+1 == chunks/10 || i+1 == chunks/2 || i+1 == chunks {
			at = append(at, s.measure())
			t.Logf("after %d pods: %+v", s.serial, at[len(at)-1])
		}
	}
	s.flat(at[0], at[len(at)-1])
	dismiss()
	s.must(world.Until("every end was told", func() error {
		s.rotate()
		if s.removed != lives {
			return fmt.Errorf("%d of %d", s.removed, lives)
		}
		return nil
	}))
	if s.reconciled != lives {
		t.Errorf("%d pods had a container, and %d times it was told to be in the group", lives, s.reconciled)
	}
	if n := strings.Count(s.Applier.Log(), `msg="snapshot applied"`); n != 1 || !s.Applier.Alive() || !s.Watcher.Alive() {
		t.Errorf("%d snapshots instead of 1: records were lost\n%s", n, s.Applier.Log())
	}
}

// hands live lives at the same time.
const hands = 4

// firstTask is beyond the ids that a kernel gives.
const firstTask = 1 << 23

// soak is a node under the lives of many pods.
type soak struct {
	*world.World
	t      *testing.T
	tasks  *sim.Script
	lives  chan int
	todo   sync.WaitGroup
	serial int

	aside               string // the rotated log that was not read yet
	logs                int
	seq                 int64 // the last event read
	removed, reconciled int   // as the events tell
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	cfg := sim.DefaultConfig()
	cfg.NumRMIDs, cfg.Limbo = 64, 0
	tasks := sim.NewScript() // real ones would take hours to start
	tasks.Put(sim.Task{TID: firstTask})
	w, err := world.New(shop, world.Options{Sim: &cfg, Tasks: tasks, Config: map[string]string{
		"watcher.start_barrier": `"1s"`, "state.event_retention": `"1m"`, "events.fsync": "false",
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{World: w, t: t, tasks: tasks, lives: make(chan int, 10_000)}
	t.Cleanup(func() { s.must(w.Close()) })
	// Only resctrl is simulated by a filesystem; plain files do for the cgroups.
	s.must(os.Mkdir(s.cgroup("/"), 0o755))
	s.must(os.WriteFile(s.cgroup("cgroup.controllers"), nil, 0o644))
	s.must(s.WriteConfig(map[string]string{"cgroup.root": strconv.Quote(s.cgroup("/")), "proc.root": `"/proc"`}))
	_, err = s.StartApplier()
	s.must(err)
	_, err = s.StartWatcher()
	s.must(err)
	s.must(world.Until("the first snapshot was applied", func() error {
		if !strings.Contains(s.Applier.Log(), `msg="snapshot applied"`) {
			return errors.New(s.Applier.Log())
		}
		return nil
	}))
	return s
}

func (s *soak) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// cgroup is where a cgroup of the node lies.
func (s *soak) cgroup(path string) string { return filepath.Join(s.Dir, "cgroup", path) }

// hire has hands live lives; dismiss ends them. A hand's pod ends when its next
// one is set up: whatever was said before has been done then.
func (s *soak) hire(hands int) (dismiss func()) {
	var all sync.WaitGroup
	for range hands {
		all.Go(func() {
			end := func() error { return nil }
			for i := range s.lives {
				next, err := s.live(i)
				if err := errors.Join(err, end()); err != nil {
					s.t.Error(err)
				}
				end = next
				s.todo.Done()
			}
			if err := end(); err != nil {
				s.t.Error(err)
			}
		})
	}
	return func() {
		close(s.lives)
		all.Wait()
	}
}

// live begins the life of one pod, whose container has three tasks.
func (s *soak) live(i int) (end func() error, err error) {
	r := s.Runtime
	uid := fmt.Sprintf("soak-%06d", i)
	box, err := r.RunPod("pod-"+uid, "ns", uid, nrirt.PodOptions{})
	if err != nil {
		return nil, err
	}
	parent, err := r.PodCgroup(box)
	if err != nil {
		return nil, err
	}
	pid := s.tasks.Spawn()
	threads := fmt.Sprintln(append(s.tasks.CloneN(pid, 2), pid))
	id := "container-" + uid
	dir := s.cgroup(filepath.Join(parent, id))
	err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "cgroup.threads"), []byte(strings.Trim(threads, "[]\n")), 0o644))
	if err == nil {
		_, err = r.CreateContainer(box, "app", nrirt.ContainerOptions{ID: id, PID: pid})
	}
	if err == nil {
		err = r.StartContainer(id)
	}
	if err != nil {
		return nil, err
	}
	return func() error {
			s.tasks.Exit(pid)
			return errors.Join(os.RemoveAll(s.cgroup(parent)), r.StopContainer(id), r.RemovePod(box), r.RemovePodCgroup(parent))
		}, world.Until("the tasks are in the group", func() error {
			text, err := s.Model.ReadFile("mon_groups/pod_" + uid + "/tasks")
			if err == nil && len(bytes.Fields(text)) != 3 {
				err = fmt.Errorf("%q", text)
			}
			return err
		})
}

// rotate renames the event log as logrotate does, and reads the one before:
// numbers without a gap, each pod's end counted.
func (s *soak) rotate() {
	s.t.Helper()
	if s.aside != "" {
		events, err := world.ReadEvents(s.aside)
		s.must(err)
		for _, e := range events {
			if e.Seq != s.seq+1 {
				s.t.Fatalf("event %d follows %d", e.Seq, s.seq)
			}
			s.seq = e.Seq
			switch word := e.String(); {
			case !strings.HasPrefix(e.PodUID, "soak-"):
			case word == "Removed":
				s.removed++
			case word == "Exists 1/1":
				s.reconciled++
			}
		}
		s.must(os.Remove(s.aside))
	}
	s.logs++
	s.aside = fmt.Sprintf("%s.%d", s.EventLog(), s.logs)
	s.must(os.Rename(s.EventLog(), s.aside))
	// Who writes notices at his next line; the job writes none by itself.
	id, err := s.Runtime.RunPod("rotated", "ns", "rotated", nrirt.PodOptions{})
	s.must(err)
	s.must(s.Runtime.RemovePod(id))
	s.must(world.Until("the new log is there", func() error {
		_, err := os.Stat(s.EventLog())
		return err
	}))
}

// age makes the events of the table a year old, so that the job prunes them
// however fast this machine is.
func (s *soak) age() {
	s.t.Helper()
	db, err := sql.Open("sqlite3", "file:"+s.Database()+"?_txlock=immediate&_busy_timeout=60000")
	s.must(err)
	defer db.Close()
	_, err = db.Exec(`UPDATE events SET time = '2025' || substr(time, 5)`)
	s.must(err)
}

// usage is what the programs and their files take.
type usage struct {
	rss, fds, threads   map[string]int
	cpu                 map[string]time.Duration
	rows                map[string]int
	database, wal, logs int64
}

func (s *soak) measure() usage {
	s.t.Helper()
	u := usage{rss: map[string]int{}, fds: map[string]int{}, threads: map[string]int{}, rows: map[string]int{}, cpu: map[string]time.Duration{}}
	for _, d := range []*world.Daemon{s.Watcher, s.Applier} {
		u.rss[d.Name], u.threads[d.Name] = procNumber(s.t, d.PID, "VmRSS"), procNumber(s.t, d.PID, "Threads")
		u.cpu[d.Name] = cpuTime(s.t, d.PID)
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.PID))
		s.must(err)
		u.fds[d.Name] = len(open)
	}
	// What was said last is dealt with in a moment.
	s.must(world.Until("only the latest pods are left", func() error {
		for _, table := range []string{"pods", "sandboxes", "containers", "events", "meta"} {
			n, err := s.Value("SELECT count(*) FROM " + table)
			if err != nil {
				return err
			}
			u.rows[table], _ = strconv.Atoi(n)
		}
		if u.rows["pods"] > hands || u.rows["sandboxes"] > hands || u.rows["containers"] > hands {
			return fmt.Errorf("%v", u.rows)
		}
		return nil
	}))
	groups, err := s.Groups()
	if err != nil || len(groups) != u.rows["pods"] {
		s.t.Errorf("groups are left: %q, %v", groups, err)
	}
	for path, size := range map[string]*int64{s.Database(): &u.database, s.Database() + "-wal": &u.wal, s.EventLog(): &u.logs} {
		st, err := os.Stat(path)
		s.must(err)
		*size = st.Size()
	}
	for dir, most := range map[string]int{"run": 7, "lib": 4, "out": 2} {
		entries, err := os.ReadDir(filepath.Join(s.Dir, dir))
		if err != nil || len(entries) > most {
			s.t.Errorf("%s has %v, %v", dir, entries, err)
		}
	}
	return u
}

// flat: the end is no more than the beginning, but for what a collector of
// garbage and a file of pages may have at hand.
func (s *soak) flat(first, last usage) {
	s.t.Helper()
	grown := func(what string, from, to, slack int) {
		if to > from+slack {
			s.t.Errorf("%s grew from %d to %d", what, from, to)
		}
	}
	for name := range first.rss {
		grown(name+": KiB of memory", first.rss[name], last.rss[name], 16<<10)
		grown(name+": descriptors", first.fds[name], last.fds[name], 2)
		grown(name+": threads", first.threads[name], last.threads[name], 8)
	}
	for table := range first.rows {
		// Those since the last pruning.
		slack := map[string]int{"events": first.rows["events"] + 500}[table]
		grown("rows of "+table, first.rows[table], last.rows[table], slack)
	}
	grown("bytes of the database", int(first.database), int(last.database), int(first.database)/2+1<<20)
	grown("bytes of the WAL", 0, int(last.wal), 64<<20) // what it is cut to
	grown("bytes of the event log", int(first.logs), int(last.logs), int(first.logs)+1<<20)
}

// procNumber is a number of /proc/PID/status.
func procNumber(t testing.TB, pid int, key string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + key + `:\s+(\d+)`).FindSubmatch(bytes.TrimSpace(text))
	if m == nil {
		t.Fatalf("process %d has no %s", pid, key)
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// cpuTime is what a process has had of the CPUs (proc(5), stat: utime, stime).
func cpuTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	words := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	user, _ := strconv.Atoi(string(words[11]))
	system, _ := strconv.Atoi(string(words[12]))
	return time.Duration(user+system) * 10 * time.Millisecond
}
