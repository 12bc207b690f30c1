package fusemount

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	// fsName is what mount(8) shows.
	fsName = "nri-resctrl-sim"
	// openFlags: every read(2) and write(2) comes to us as it is; and close(2)
	// does not wait for us: a process that serves a mount and has files open
	// below it could not die otherwise.
	openFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH
	maxWrite  = 128 << 10
	// unmountPatience is how long an ordinary user's unmount waits for programs
	// that still have files open; root ends the connection instead.
	unmountPatience = 5 * time.Second
)

// serve mounts and starts serving.
func (m *Mount) serve() (*fuse.Server, error) {
	none := time.Duration(0)
	quiet := log.New(io.Discard, "", 0)
	o := &fs.Options{
		EntryTimeout: &none, AttrTimeout: &none, NegativeTimeout: &none,
		NullPermissions: true, Logger: quiet,
		MountOptions: fuse.MountOptions{
			FsName: fsName, Name: fsName, MaxWrite: maxWrite,
			DisableXAttrs: true, DisableReadDirPlus: true, Logger: quiet,
		},
	}
	if os.Geteuid() != 0 {
		return fs.Mount(m.Dir, &topNode{m: m}, o)
	}
	fd, err := mountDirect(m.Dir)
	if err != nil {
		return nil, err
	}
	server, err := fs.Mount(fmt.Sprintf("/dev/fd/%d", fd), &topNode{m: m}, o)
	if err == nil {
		err = settlePoll(m.Dir)
	}
	if err != nil {
		return nil, errors.Join(err, detach(m.Dir))
	}
	return server, nil
}

// mountDirect is mount(2), with a descriptor that no child inherits: with one
// in a child the mount would outlive us. go-fuse (2.12) opens it without
// O_CLOEXEC.
//
// The kernel checks modes, as it does on resctrl. For an ordinary user it must
// not: nobody could make a group in a root of mode 0555.
func mountDirect(dir string) (int, error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open /dev/fuse: %w", err)
	}
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions,max_read=%d", fd, maxWrite)
	if err := unix.Mount(fsName, dir, "fuse."+fsName, unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// settlePoll makes the kernel learn that nothing here can be polled, before
// the Go runtime of some program (ours!) adds a file to its epoll: it does so
// in a call that blocks the whole P, and may be the one that should answer.
func settlePoll(dir string) error {
	path := filepath.Join(dir, ProcDir, "sys/kernel/random/boot_id")
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); err != nil {
		return fmt.Errorf("poll %s: %w", path, err)
	}
	return nil
}

// Unmount ends the mount and waits until nothing serves it any more. While a
// program has something open below, the program's next calls fail. Unmounting
// again does nothing.
func (m *Mount) Unmount() error {
	m.mu.Lock()
	done := m.done
	m.done = true
	m.mu.Unlock()
	if done {
		return nil
	}
	if err := unmount(m.Dir); err != nil {
		return fmt.Errorf("unmount the simulator at %s: %w", m.Dir, err)
	}
	ended := make(chan struct{})
	go func() {
		m.server.Wait()
		close(ended)
	}()
	timer := time.NewTimer(unmountPatience)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		return fmt.Errorf("unmount the simulator at %s: detached, but a program still has a file of it open", m.Dir)
	}
	if m.guard != nil {
		m.guard.dismiss()
	}
	return nil
}

func unmount(dir string) error {
	if os.Geteuid() != 0 {
		minor, ok := device(dir)
		err := exec.Command("fusermount3", "-u", dir).Run()
		if err != nil {
			err = detach(dir)
		}
		if ok {
			abort(minor)
		}
		return err
	}
	// MNT_FORCE ends the connection, also where another mount namespace has a
	// copy of the mount; then it may be busy nevertheless.
	err := unix.Unmount(dir, unix.MNT_FORCE)
	if errors.Is(err, unix.EBUSY) {
		err = detach(dir)
	}
	return err
}

// detach unmounts lazily: it works also while files are open, and where the
// process that served the mount has died.
func detach(dir string) error {
	if os.Geteuid() == 0 {
		return unix.Unmount(dir, unix.MNT_DETACH)
	}
	if out, err := exec.Command("fusermount3", "-uz", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("fusermount3 -uz %s: %w: %s", dir, err, out)
	}
	return nil
}

func device(dir string) (minor uint32, ok bool) {
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return 0, false
	}
	return unix.Minor(uint64(st.Dev)), true
}

// abort ends the connection of a mount, if it is still there: somebody uses it,
// or another mount namespace has a copy. Its owner may, where fusectl is mounted.
func abort(minor uint32) {
	path := fmt.Sprintf("/sys/fs/fuse/connections/%d/abort", minor)
	_ = os.WriteFile(path, []byte("1\n"), 0)
}
