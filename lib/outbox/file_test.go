package outbox

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNotARegularFileIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		make func(path string) error
		want string
	}{
		"symlink":   {func(p string) error { return os.Symlink("/etc/passwd", p) }, "symbolic link"},
		"dangling":  {func(p string) error { return os.Symlink("nowhere", p) }, "symbolic link"},
		"fifo":      {func(p string) error { return unix.Mkfifo(p, 0o600) }, "no regular file"},
		"directory": {func(p string) error { return os.Mkdir(p, 0o700) }, "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.must(test.make(b.path))
			b.src.add(1)
			err := b.log.Export(context.Background())
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), b.path) {
				t.Fatalf("export = %v, want %q and the path", err, test.want)
			}
		})
	}
}

// The umask is a process's, so a process of its own has a hostile one.
func TestModeDoesNotDependOnTheUmask(t *testing.T) {
	t.Parallel()
	const env = "OUTBOX_TEST_UMASK"
	if path := os.Getenv(env); path != "" {
		unix.Umask(0o777)
		src := &memory{}
		src.add(1)
		if err := New(path, src, Options{LogID: testLog, Fsync: true}).Export(context.Background()); err != nil {
			t.Fatal(err)
		}
		return
	}
	// An ordinary user who cannot open what his umask shut must not fail either.
	path := filepath.Join(t.TempDir(), "logs", "events.jsonl")
	cmd := exec.Command(os.Args[0], "-test.run=^TestModeDoesNotDependOnTheUmask$")
	cmd.Env = append(os.Environ(), env+"="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, want := range map[string]os.FileMode{path: 0o640, filepath.Dir(path): 0o750} {
		st, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm() != want {
			t.Errorf("%s has mode %o, want %o", name, st.Mode().Perm(), want)
		}
	}
}

func TestGroupIsGiven(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to any group")
	}
	path := filepath.Join(t.TempDir(), "logs", "events.jsonl")
	src := &memory{}
	src.add(1)
	export := func(group string) error {
		return New(path, src, Options{LogID: testLog, Group: group}).Export(context.Background())
	}
	gid := func(name string) uint32 {
		var st syscall.Stat_t
		if err := syscall.Stat(name, &st); err != nil {
			t.Fatal(err)
		}
		return st.Gid
	}
	if err := export("4242"); err != nil {
		t.Fatal(err)
	}
	if f, d := gid(path), gid(filepath.Dir(path)); f != 4242 || d != 4242 {
		t.Errorf("group of the log is %d, of its directory %d, want 4242", f, d)
	}
	if err := export("4343"); err != nil { // the configuration was changed
		t.Fatal(err)
	}
	if f := gid(path); f != 4343 {
		t.Errorf("group of the log is %d, want 4343", f)
	}
	if err := export("no-such-group"); err == nil || !strings.Contains(err.Error(), "no-such-group") {
		t.Errorf("export with an unknown group = %v", err)
	}
}

// A directory that was there before state.group was set lets the group in, too,
// unless somebody gave it a mode or group of his own; with a log in it or none.
func TestGroupOfAPresentDirectory(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to any group")
	}
	for _, test := range []struct {
		mode      os.FileMode
		gid, want uint32
		log       bool
	}{
		{0o750, 0, 4242, false}, {0o750, 0, 4242, true}, {0o755, 0, 0, false}, {0o700, 0, 0, true}, {0o750, 4343, 4242, true}, {0o755, 4343, 4343, true},
	} {
		dir := filepath.Join(t.TempDir(), "logs")
		path := filepath.Join(dir, "events.jsonl")
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(os.Mkdir(dir, 0o700))
		if test.log {
			must(os.WriteFile(path, nil, 0o600))
		}
		must(os.Chown(dir, -1, int(test.gid)))
		must(os.Chmod(dir, test.mode))
		src := &memory{}
		src.add(1)
		must(New(path, src, Options{LogID: testLog, Group: "4242"}).Export(context.Background()))
		var st syscall.Stat_t
		must(syscall.Stat(dir, &st))
		if st.Gid != test.want || os.FileMode(st.Mode&0o777) != test.mode {
			t.Errorf("%+v: group %d, mode %o", test, st.Gid, st.Mode)
		}
	}
}
