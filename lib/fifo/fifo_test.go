package fifo

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newPath returns the path of a new FIFO.
func newPath(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run", "lifecycle.pipe")
	if err := Ensure(filepath.Dir(path), path); err != nil {
		t.Fatal(err)
	}
	return path
}

func openR(t *testing.T, path string) *Reader {
	t.Helper()
	r, err := OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() }) // most tests closed it already
	return r
}

func openW(t *testing.T, path string) *Writer {
	t.Helper()
	w, err := OpenWriter(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// newPair returns both ends of a new FIFO.
func newPair(t *testing.T) (*Reader, *Writer) {
	t.Helper()
	path := newPath(t)
	r := openR(t, path)
	return r, openW(t, path)
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func TestEnsureMakesBoth(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	if got, want := mode(t, filepath.Dir(path)), fs.ModeDir|0o750; got != want {
		t.Errorf("directory has mode %v, want %v", got, want)
	}
	if got, want := mode(t, path), fs.ModeNamedPipe|0o600; got != want {
		t.Errorf("pipe has mode %v, want %v", got, want)
	}
	if err := Ensure(filepath.Dir(path), path); err != nil {
		t.Errorf("Ensure of what is there: %v", err)
	}
}

func TestEnsureLeavesTheDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := Ensure(dir, filepath.Join(dir, "p")); err != nil {
		t.Fatal(err)
	}
	if got, want := mode(t, dir), fs.ModeDir|0o711; got != want {
		t.Errorf("directory has mode %v, want %v as before", got, want)
	}
}

func TestEnsureFromManySides(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if err := Ensure(dir, filepath.Join(dir, "p")); err != nil {
				t.Errorf("Ensure beside others: %v", err)
			}
		})
	}
	wg.Wait()
}

func TestEnsureErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Ensure(filepath.Join(file, "run"), filepath.Join(file, "run", "p")); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("Ensure below a file: %v, want an error that names it", err)
	}
	if err := Ensure(filepath.Dir(file), filepath.Join(filepath.Dir(file), "absent", "p")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Ensure in a directory that is not there: %v, want ErrNotExist", err)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		make func(path string) error
		want string
	}{
		{"regular file", func(p string) error { return os.WriteFile(p, []byte("x\n"), 0o600) }, "regular file"},
		{"directory", func(p string) error { return os.Mkdir(p, 0o700) }, "directory"},
		{"socket", func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o600, 0) }, "socket"},
		{"link to a pipe", func(p string) error {
			return errors.Join(unix.Mkfifo(p+".real", 0o600), os.Symlink(p+".real", p))
		}, "symbolic link"},
		{"link to nothing", func(p string) error { return os.Symlink(p+".absent", p) }, "symbolic link"},
		{"group may write", func(p string) error { return errors.Join(unix.Mkfifo(p, 0o600), os.Chmod(p, 0o620)) }, "mode 0620"},
		{"others may read", func(p string) error { return errors.Join(unix.Mkfifo(p, 0o600), os.Chmod(p, 0o604)) }, "mode 0604"},
		{"another user's", func(p string) error { return errors.Join(unix.Mkfifo(p, 0o600), os.Chown(p, 65534, 65534)) }, "belongs to user 65534"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "p")
			if err := tt.make(path); err != nil {
				if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
					t.Skipf("only root can make it: %v", err)
				}
				t.Fatal(err)
			}
			_, rErr := OpenReader(path)
			_, wErr := OpenWriter(path)
			for what, err := range map[string]error{"Ensure": Ensure(filepath.Dir(path), path), "OpenReader": rErr, "OpenWriter": wErr} {
				var refused *RefusedError
				if !errors.Is(err, ErrRefused) || !errors.As(err, &refused) {
					t.Errorf("%s: %v, want a RefusedError", what, err)
					continue
				}
				if msg := err.Error(); !strings.Contains(msg, path) || !strings.Contains(msg, tt.want) || refused.Do == "" {
					t.Errorf("%s: %q, want the path, %q and what to do", what, msg, tt.want)
				}
			}
		})
	}
}

// TestReplacedWhileOpening: what is opened is checked again.
func TestReplacedWhileOpening(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := map[string]error{
		"open": errors.Join(unix.Mkfifo(filepath.Join(dir, "open"), 0o600), os.Chmod(filepath.Join(dir, "open"), 0o666)),
		"file": os.WriteFile(filepath.Join(dir, "file"), []byte("x\n"), 0o600),
		"link": os.Symlink(newPath(t), filepath.Join(dir, "link")),
	}
	for name, err := range bad {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := openChecked(filepath.Join(dir, name), unix.O_RDWR); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v, want ErrRefused", name, err)
		}
	}
}

func TestOpenAbsent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "absent")
	if _, err := OpenReader(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("OpenReader: %v, want ErrNotExist", err)
	}
	if _, err := OpenWriter(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("OpenWriter: %v, want ErrNotExist", err)
	}
}

func TestOpenWriterWithoutReader(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	if _, err := OpenWriter(path); !errors.Is(err, ErrNoReader) {
		t.Errorf("OpenWriter: %v, want ErrNoReader", err)
	}
}

func TestChanged(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	r := openR(t, path)
	w := openW(t, path)
	check := func(when string, want bool) {
		t.Helper()
		if r.Changed() != want || w.Changed() != want {
			t.Errorf("%s: Changed = %v, %v, want %v", when, r.Changed(), w.Changed(), want)
		}
	}
	check("at first", false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check("removed", true)
	if err := Ensure(filepath.Dir(path), path); err != nil {
		t.Fatal(err)
	}
	check("made anew", true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check("a file now", true)
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	check("its directory gone", true)
}
