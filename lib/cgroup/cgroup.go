// Package cgroup finds a container's cgroup and the tasks in it: cgroup v2
// (Documentation/admin-guide/cgroup-v2.rst), v1 and both at once (hybrid), with
// the cgroupfs and the systemd driver of the runtime. It changes nothing.
//
// A path of this package starts with "/" and is meant below the cgroup root, so
// that root and path together are the directory: "/kubepods.slice/…" on v2,
// "/pids/kubepods/…" (with the hierarchy) on v1, "/unified/…" on hybrid.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// ErrBadPath says that a path from the runtime was refused: it could lead out of
// the root, or is no path at all.
var ErrBadPath = errors.New("refused cgroup path")

// errNoHierarchy says that the root has no cgroups: nothing may be concluded
// from a directory that is not there.
var errNoHierarchy = errors.New("no cgroup hierarchy there (neither cgroup.controllers nor a controller's directory)")

// Files that tell what a directory is.
const (
	fileControllers = "cgroup.controllers" // v2, in every cgroup
	fileThreads     = "cgroup.threads"     // v2: all TIDs, also of a threaded cgroup
	fileTasks       = "tasks"              // v1: all TIDs
	dirUnified      = "unified"            // v2's place in the hybrid layout
)

// Bounds of a path that somebody else names: NAME_MAX and PATH_MAX.
const (
	maxName = 255
	maxPath = 4096
)

// FS is a cgroup filesystem. It holds no descriptor and may be used by many
// goroutines.
type FS struct {
	root     string
	procRoot string
}

// New gives the cgroups at root (/sys/fs/cgroup); procRoot is /proc.
func New(root, procRoot string) *FS {
	return &FS{root: filepath.Clean(root), procRoot: filepath.Clean(procRoot)}
}

// hierarchy is one mounted tree of cgroups.
type hierarchy struct {
	dir         string   // below the root; "." on v2
	controllers []string // v1: the names that are one directory, "cpu", "cpuacct"
	v2          bool
}

// v1Order says in which v1 hierarchy a container is looked for first. Runtimes
// put it into every one; these are always there, and pids is never shared with
// other uses.
var v1Order = []string{"pids", "memory", "cpu", "cpuset", "systemd"}

// hierarchies gives the trees below the root, the surest first.
func (f *FS) hierarchies(root *os.Root) ([]hierarchy, error) {
	if is(root, fileControllers) {
		return []hierarchy{{dir: ".", v2: true}}, nil
	}
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var all []hierarchy
	for _, e := range entries {
		switch name := e.Name(); {
		case !e.IsDir(): // "cpu" is a link to "cpu,cpuacct"
		case name == dirUnified && is(root, path.Join(name, fileControllers)):
			all = append(all, hierarchy{dir: name, v2: true})
		case is(root, path.Join(name, fileTasks)):
			all = append(all, hierarchy{dir: name, controllers: strings.Split(name, ",")})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: %w", f.root, errNoHierarchy)
	}
	slices.SortFunc(all, func(a, b hierarchy) int {
		if d := a.rank() - b.rank(); d != 0 {
			return d
		}
		return strings.Compare(a.dir, b.dir)
	})
	return all, nil
}

func (h hierarchy) rank() int {
	if h.v2 {
		return -1
	}
	best := len(v1Order)
	for _, c := range h.controllers {
		if i := slices.Index(v1Order, c); i >= 0 {
			best = min(best, i)
		}
	}
	return best
}

// is says whether something is there.
func is(root *os.Root, name string) bool {
	_, err := root.Lstat(name)
	return err == nil
}

// isDir says whether name is a directory in the root; links do not count.
func isDir(root *os.Root, name string) (bool, error) {
	st, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return st.IsDir(), nil
}

// clean checks a path that somebody else named and gives it as "/a/b". One that
// names the root itself, or could leave it, is refused.
func clean(p string) (string, error) {
	if len(p) > maxPath {
		return "", fmt.Errorf("%w: %d bytes long", ErrBadPath, len(p))
	}
	if strings.ContainsFunc(p, unicode.IsControl) {
		return "", fmt.Errorf("%w: %q has a control character", ErrBadPath, p)
	}
	var parts []string
	for part := range strings.SplitSeq(p, "/") {
		switch {
		case part == "" || part == ".":
		case part == "..":
			return "", fmt.Errorf("%w: %q has a \"..\"", ErrBadPath, p)
		case len(part) > maxName:
			return "", fmt.Errorf("%w: a name of %d bytes in it", ErrBadPath, len(part))
		default:
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return "", fmt.Errorf("%w: %q is the root of all cgroups", ErrBadPath, p)
	}
	return "/" + strings.Join(parts, "/"), nil
}

// expandSlice gives the path of a systemd slice: "a-b.slice" is
// "/a.slice/a-b.slice" (systemd.slice(5)).
func expandSlice(slice string) (string, error) {
	name, ok := strings.CutSuffix(slice, ".slice")
	if !ok || name == "" || strings.Contains(slice, "/") {
		return "", fmt.Errorf("%w: %q is no slice", ErrBadPath, slice)
	}
	if name == "-" {
		return "/", nil
	}
	var b strings.Builder
	prefix := ""
	for part := range strings.SplitSeq(name, "-") {
		if part == "" {
			return "", fmt.Errorf("%w: %q is no slice", ErrBadPath, slice)
		}
		prefix += part
		b.WriteString("/" + prefix + ".slice")
		prefix += "-"
	}
	return b.String(), nil
}
