package kernel_test

import (
	"path"
	"syscall"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/sim"
)

// memoryFace makes the calls on the model itself, as memfs does.
type memoryFace struct {
	m     *sim.Model
	clock *sim.ManualClock
	held  map[string]bool
}

func memoryWorld(t *testing.T, e env, cfg sim.Config) *world {
	script, clock := sim.NewScript(), sim.NewManualClock()
	f := &memoryFace{m: sim.New(cfg, clock, script), clock: clock, held: map[string]bool{}}
	return &world{t: t, env: e, face: f, tasks: &scripted{f, script}}
}

// at finds the directory of a path, and its last name.
func (f *memoryFace) at(p string) (sim.Node, string, error) {
	dir, name := path.Split(p)
	n, err := f.m.Walk(dir)
	if err == nil && len(p) >= 4096 {
		err = syscall.ENAMETOOLONG
	}
	return n, name, err
}

func (f *memoryFace) mkdir(p string, perm uint32) error {
	n, name, err := f.at(p)
	if err != nil {
		return err
	}
	_, err = f.m.Mkdir(n, name, perm, sim.Caller{})
	return err
}

func (f *memoryFace) rmdir(p string) error {
	n, name, err := f.at(p)
	if err != nil {
		return err
	}
	return f.m.Rmdir(n, name)
}

func (f *memoryFace) unlink(p string) error {
	n, err := f.m.Walk(p)
	if err != nil {
		return err
	}
	if n.IsDir() {
		return syscall.EISDIR
	}
	return syscall.EPERM
}

func (f *memoryFace) symlink(string, string) error { return syscall.EPERM }

func (f *memoryFace) create(string) error { return syscall.EACCES }

func (f *memoryFace) rename(from, to string) error {
	n, name, err := f.at(from)
	if err != nil {
		return err
	}
	n2, name2, err := f.at(to)
	if err != nil {
		return err
	}
	return f.m.Rename(n, name, n2, name2)
}

func (f *memoryFace) chmod(p string, perm uint32) error {
	n, err := f.m.Walk(p)
	if err == nil {
		f.m.SetAttr(n, &perm, nil, nil)
	}
	return err
}

func (f *memoryFace) chown(p string, uid uint32) error {
	n, err := f.m.Walk(p)
	if err == nil {
		f.m.SetAttr(n, nil, &uid, nil)
	}
	return err
}

func (f *memoryFace) stat(p string) (info, error) {
	n, err := f.m.Walk(p)
	if err != nil {
		return info{}, err
	}
	a := f.m.Attr(n)
	return info{dir: a.Dir, perm: a.Perm, ino: a.Ino, uid: a.UID}, nil
}

func (f *memoryFace) list(p string) ([]string, error) {
	n, err := f.m.Walk(p)
	if err != nil {
		return nil, err
	}
	entries, err := f.m.Entries(n)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names, err
}

func (f *memoryFace) open(p string, flags int) (file, error) {
	n, err := f.m.Walk(p)
	if err != nil {
		return nil, err
	}
	if n.IsDir() && flags&syscall.O_ACCMODE == syscall.O_RDONLY {
		return &memoryDir{release: f.m.Hold()}, nil
	}
	opened, err := f.m.Open(n, flags&syscall.O_ACCMODE != syscall.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return &memoryFile{f: opened}, nil
}

func (f *memoryFace) group(tid int) (string, error) { return f.m.TaskGroup(tid) }

func (f *memoryFace) lock(p string) (func(), error) {
	if f.held[p] {
		return nil, syscall.EWOULDBLOCK
	}
	f.held[p] = true
	release := f.m.Hold()
	return func() { f.held[p] = false; release() }, nil
}

func (f *memoryFace) mount() error         { return f.m.Mount() }
func (f *memoryFace) unmount() error       { return f.m.Unmount() }
func (f *memoryFace) pass(d time.Duration) { f.clock.Advance(d) }

type memoryDir struct{ release func() }

func (d *memoryDir) read(int) (string, error)         { return "", syscall.EISDIR }
func (d *memoryDir) pread(int, int64) (string, error) { return "", syscall.EISDIR }
func (d *memoryDir) write(string) error               { return syscall.EBADF }
func (d *memoryDir) close()                           { d.release() }

type memoryFile struct {
	f  *sim.File
	at int64
}

func (m *memoryFile) read(n int) (string, error) {
	s, err := m.pread(n, m.at)
	m.at += int64(len(s))
	return s, err
}

func (m *memoryFile) pread(n int, at int64) (string, error) {
	buf := make([]byte, n)
	got, err := m.f.ReadAt(buf, at)
	return string(buf[:got]), err
}

func (m *memoryFile) write(data string) error { return m.f.Write([]byte(data), sim.Caller{TID: 1}) }
func (m *memoryFile) close()                  { m.f.Close() }

// scripted makes tasks of the script.
type scripted struct {
	face   *memoryFace
	script *sim.Script
}

type scriptedProcess struct {
	*scripted
	id int
}

func (s *scripted) start() process { return &scriptedProcess{s, s.script.Spawn()} }

func (s *scripted) startApart() process { panic("the script has one PID namespace") }

func (s *scripted) startAs(uid uint32) process {
	p := s.start()
	t, _ := s.script.Task(p.pid())
	t.UID = uid
	s.script.Put(t)
	return p
}

func (p *scriptedProcess) orphan(tid int) int {
	child := p.script.Fork(tid)
	grandchild := p.script.Fork(child)
	p.script.Exit(child)
	return grandchild
}

func (p *scriptedProcess) adopt() {}

func (p *scriptedProcess) mkdir(path string) error { return p.face.mkdir(path, 0o755) }
func (p *scriptedProcess) dropOverride()           {}

func (p *scriptedProcess) pid() int         { return p.id }
func (p *scriptedProcess) thread() int      { return p.script.Clone(p.id) }
func (p *scriptedProcess) fork(tid int) int { return p.script.Fork(tid) }
func (p *scriptedProcess) all() []int {
	list, _ := p.script.Threads(p.id)
	var tids []int
	for _, t := range list {
		tids = append(tids, t.TID)
	}
	return tids
}
func (p *scriptedProcess) busy()       {}
func (p *scriptedProcess) end(pid int) { p.script.Exit(pid) }

func (p *scriptedProcess) zombie(pid int) {
	t, _ := p.script.Task(pid)
	t.Zombie = true
	p.script.Put(t)
}

func (p *scriptedProcess) write(tid int, path, data string) error {
	return p.face.m.WriteFile(path, []byte(data), sim.Caller{TID: tid})
}

func (p *scriptedProcess) read(path string) string {
	text, _ := p.face.m.ReadFile(path)
	return string(text)
}
