package sim

import (
	"syscall"
)

// pageSize bounds one write(2) to any file of resctrl.
const pageSize = 4096

// File is an open descriptor of a model's file.
type File struct {
	m        *Model
	node     Node
	writable bool
	snapshot string
	taken    bool
	closed   bool
	boot     int
}

// Open opens a file. Opening for writing what cannot be written is EACCES,
// also for root; a directory EISDIR.
func (m *Model) Open(n Node, write bool) (*File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case n.IsDir():
		return nil, syscall.EISDIR
	case n.g.removed:
		return nil, syscall.ENOENT
	case write && !n.writable():
		return nil, syscall.EACCES
	}
	m.open++
	return &File{m: m, node: n, writable: write, boot: m.boot}, nil
}

// Hold keeps the filesystem busy as an open directory does, until release.
func (m *Model) Hold() (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open++
	done, boot := false, m.boot
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if !done && boot == m.boot {
			m.open--
		}
		done = true
	}
}

// ReadAt is pread(2). What one descriptor reads is a snapshot, which a read at
// 0 renews. ENODEV once the group is gone.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.node.g.removed {
		return 0, syscall.ENODEV
	}
	if !f.taken || off == 0 {
		f.snapshot, f.taken = f.m.content(f.node), true
	}
	if off >= int64(len(f.snapshot)) {
		return 0, nil
	}
	return copy(p, f.snapshot[off:]), nil
}

// Write is one write(2): all of data or nothing of it is looked at. E2BIG
// above a page, ENODEV once the group is gone, EBADF where the file was opened
// for reading.
func (f *File) Write(data []byte, by Caller) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	switch {
	case !f.writable:
		return syscall.EBADF
	case len(data) > pageSize:
		return syscall.E2BIG
	case f.node.g.removed:
		return syscall.ENODEV
	}
	return f.m.store(f.node, data, by)
}

// Close releases the descriptor. Closing it again does nothing.
func (f *File) Close() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if !f.closed && f.boot == f.m.boot {
		f.m.open--
	}
	f.closed = true
}

// ReadFile reads a whole file by its path below the root.
func (m *Model) ReadFile(path string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.walk(path)
	if err != nil {
		return nil, err
	}
	if n.IsDir() {
		return nil, syscall.EISDIR
	}
	return []byte(m.content(n)), nil
}

// WriteFile opens a file by its path below the root and writes once.
func (m *Model) WriteFile(path string, data []byte, by Caller) error {
	n, err := m.Walk(path)
	if err != nil {
		return err
	}
	f, err := m.Open(n, true)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Write(data, by)
}

func (m *Model) content(n Node) string {
	switch n.dir {
	case dirDomain:
		return m.reading(n.g, n.file)
	case dirInfo:
		return m.status.read()
	case dirResource:
		return m.info(n.sub, n.file)
	}
	switch n.file {
	case "tasks":
		return m.readTasks(n.g)
	case "cpus":
		return formatMask(n.g.cpus)
	case "cpus_list":
		return formatList(n.g.cpus)
	case "mode":
		return n.g.mode + "\n"
	case "schemata":
		return m.formatSchemata(n.g)
	}
	return m.formatSize(n.g)
}

func (m *Model) store(n Node, data []byte, by Caller) error {
	text := cString(data)
	if n.dir == dirResource {
		return m.setThreshold(text)
	}
	switch n.file {
	case "tasks":
		return m.writeTasks(n.g, text, by)
	case "cpus":
		return m.writeCPUs(n.g, text, parseMask)
	case "cpus_list":
		return m.writeCPUs(n.g, text, parseList)
	case "mode":
		return m.writeMode(n.g, text)
	}
	return m.writeSchemata(n.g, text)
}

// cString is what the kernel's string functions see of a buffer.
func cString(data []byte) string {
	for i, b := range data {
		if b == 0 {
			return string(data[:i])
		}
	}
	return string(data)
}
