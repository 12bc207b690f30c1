package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"
)

// Ref is what a runtime says of a container. Nothing in it is trusted.
type Ref struct {
	PID          int    // of the container's first process; 0 where unknown
	ID           string // the container's id
	CgroupsPath  string // OCI linux.cgroupsPath: "/a/b", or "slice:prefix:name"
	CgroupParent string // the pod's: "/a/b", or a bare slice name
}

// Resolve gives the path of a container's cgroup: where its process is, if that
// can be its cgroup, else where the runtime says. Errors: fs.ErrNotExist where
// there is none (yet); ErrBadPath where what the runtime says was refused.
//
// A process id may be wrong or used again by now, and must not give us the whole
// node or a system service. So the process's cgroup counts only if it has the
// container's id in its path or is where the runtime says (then the path is cut
// there: a process may have gone into a cgroup below), or if the runtime says
// nothing of a path; and never if it is the root.
func (f *FS) Resolve(ref Ref) (string, error) {
	root, err := os.OpenRoot(f.root)
	if err != nil {
		return "", f.rootError(err)
	}
	defer root.Close()
	trees, err := f.hierarchies(root)
	if err != nil {
		return "", err
	}
	wanted, badPath := candidates(ref)
	for _, tree := range trees {
		for _, p := range append(f.ofProcess(tree, ref, wanted), wanted...) {
			p = path.Join("/", tree.dir, p)
			ok, err := isDir(root, "."+p)
			if err != nil {
				return "", fmt.Errorf("look for cgroup %s%s: %w", f.root, p, err)
			}
			if ok {
				return p, nil
			}
		}
	}
	if badPath != nil {
		return "", badPath
	}
	return "", fmt.Errorf("cgroup of container %q (cgroups path %q, pid %d): %w",
		ref.ID, ref.CgroupsPath, ref.PID, fs.ErrNotExist)
}

// ParentExists says whether a pod's cgroup parent is there, in any hierarchy: a
// full path, or a bare slice name. Nothing is said (an error) of an empty name or
// while the root has no cgroups.
func (f *FS) ParentExists(cgroupParent string) (bool, error) {
	places, err := parentPaths(cgroupParent)
	if err != nil {
		return false, fmt.Errorf("look for cgroup parent: %w", err)
	}
	root, err := os.OpenRoot(f.root)
	if err != nil {
		return false, f.rootError(err)
	}
	defer root.Close()
	trees, err := f.hierarchies(root)
	if err != nil {
		return false, err
	}
	for _, tree := range trees {
		for _, p := range places {
			ok, err := isDir(root, path.Join(tree.dir, "."+p))
			if err != nil {
				return false, fmt.Errorf("look for cgroup parent %s: %w", p, err)
			}
			if ok {
				return true, nil
			}
		}
	}
	return false, nil
}

// rootError is never fs.ErrNotExist: without the root nothing is known of what
// is below.
func (f *FS) rootError(err error) error {
	return fmt.Errorf("open cgroup root %s: %v", f.root, err)
}

// parentPaths gives where a cgroup parent may be.
func parentPaths(parent string) ([]string, error) {
	var paths []string
	if slice, err := expandSlice(parent); err == nil {
		if slice == "/" {
			return nil, fmt.Errorf("%w: %q is the root of all cgroups", ErrBadPath, parent)
		}
		paths = append(paths, slice)
	}
	literal, err := clean(parent)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(paths, literal) {
		paths = append(paths, literal)
	}
	return paths, nil
}

// candidates gives where the runtime's words put the container, the surest
// first; err where they were refused and nothing else is left.
func candidates(ref Ref) (paths []string, err error) {
	if ref.CgroupsPath != "" {
		p, err := fromCgroupsPath(ref.CgroupsPath)
		if err != nil {
			return nil, err
		}
		return []string{p}, nil
	}
	if ref.CgroupParent == "" || !usableID(ref.ID) {
		return nil, nil
	}
	parents, err := parentPaths(ref.CgroupParent)
	if err != nil {
		return nil, err
	}
	for _, parent := range parents {
		paths = append(paths,
			path.Join(parent, ref.ID),
			path.Join(parent, "cri-containerd-"+ref.ID+".scope"),
			path.Join(parent, "crio-"+ref.ID+".scope"))
	}
	return paths, nil
}

// fromCgroupsPath gives the path for an OCI cgroupsPath. runc's systemd driver
// takes it as "slice:prefix:name": the unit is prefix-name.scope in that slice.
func fromCgroupsPath(p string) (string, error) {
	parts := strings.Split(p, ":")
	if strings.HasPrefix(p, "/") || len(parts) != 3 {
		return clean(p)
	}
	slice, prefix, name := parts[0], parts[1], parts[2]
	if slice == "" {
		slice = "system.slice"
	}
	dir, err := expandSlice(path.Base(slice))
	if err != nil {
		return "", err
	}
	if name == "" || strings.Contains(prefix+name, "/") {
		return "", fmt.Errorf("%w: %q names no unit", ErrBadPath, p)
	}
	switch {
	case strings.HasSuffix(name, ".slice"):
		return clean(path.Join(dir, name))
	case prefix != "":
		name = prefix + "-" + name
	}
	return clean(path.Join(dir, name+".scope"))
}

// usableID says whether a container's id can be looked for in a path.
func usableID(id string) bool {
	return len(id) >= minID && len(id) <= maxID && !strings.Contains(id, "/") && !strings.ContainsFunc(id, unicode.IsControl)
}

const (
	minID = 8                                      // a shorter id might be found in any path
	maxID = maxName - len("cri-containerd-.scope") // a longer one is no directory's name
)

// ofProcess gives the cgroup of the container's process in one hierarchy, if it
// may count: none or one path.
func (f *FS) ofProcess(tree hierarchy, ref Ref, wanted []string) []string {
	if ref.PID <= 0 {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(f.procRoot, strconv.Itoa(ref.PID), "cgroup"))
	if err != nil {
		return nil // it ended, or was never there
	}
	p, err := clean(procCgroup(string(data), tree))
	if err != nil {
		return nil
	}
	for _, w := range wanted {
		if p == w || strings.HasPrefix(p, w+"/") {
			return []string{w}
		}
		// The runtime's own cgroup may stand before the path that it names.
		if i := strings.Index(p+"/", w+"/"); i >= 0 {
			return []string{p[:i+len(w)]}
		}
	}
	if usableID(ref.ID) {
		if i := strings.Index(p, ref.ID); i >= 0 {
			if end := strings.IndexByte(p[i:], '/'); end >= 0 {
				p = p[:i+end]
			}
			return []string{p}
		}
	}
	if len(wanted) > 0 {
		return nil
	}
	return []string{p}
}

// procCgroup gives the path of one hierarchy in /proc/<pid>/cgroup (cgroups(7)):
// lines of "id:controllers:path"; v2's line has neither id nor controllers.
func procCgroup(text string, tree hierarchy) string {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		names := strings.Split(strings.TrimPrefix(parts[1], "name="), ",")
		if tree.v2 && parts[0] == "0" && parts[1] == "" {
			return parts[2]
		}
		if !tree.v2 && slices.ContainsFunc(names, func(n string) bool { return slices.Contains(tree.controllers, n) }) {
			return parts[2]
		}
	}
	return ""
}

// vanished says whether a cgroup was removed before or while it was read.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV)
}
