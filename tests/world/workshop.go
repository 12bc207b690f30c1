// Package world is the whole pipeline in a directory of its own, for tests and
// the demo: the simulated node as a FUSE mount, the runtime on NRI's own
// adaptation with real processes, and the four programs as they are built.
// Everything about it is judged from outside: the event log, the database and
// the simulator are read with no code of the programs.
//
// Whoever uses it must call nrirt.RunWorkload first thing in main or TestMain:
// the containers' processes are that same program.
package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// Names of the programs in a Workshop.
const (
	WatcherProgram = "nri-watcher"
	ApplierProgram = "resctrl-applier"
	RetryProgram   = "resctrl-retry"
	CtlProgram     = "resctrlctl"
)

// module is this module's path.
const module = "github.com/nri-resctrl/nri-resctrl"

// Workshop is a directory with the built programs, and room for worlds.
type Workshop struct {
	Dir string
	// Bin is where the programs are. Set it before the first use to take
	// those that are there; else they are built, into Dir.
	Bin string

	race  bool
	built sync.Once
	err   error

	ended  sync.Once
	endErr error

	mu      sync.Mutex
	builder *exec.Cmd // the build that is under way
	serial  int
	worlds  map[*World]bool
	closed  bool
	janitor *exec.Cmd
	leash   io.WriteCloser
}

// janitorScript removes the directory when the process that made it ended
// without having done so. The simulators' own guards unmount first; a mount
// that is still there is not entered. A program may outlive us for a moment and
// make a directory anew: it is looked for until it has stayed away.
const janitorScript = `read -r line && exit 0
away=0
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24; do
  if [ -e "$1" ]; then away=0; rm -rf --one-file-system -- "$1" 2>/dev/null
  else away=$((away + 1)); fi
  [ $away -lt 4 ] || exit 0
  sleep 0.25
done`

// NewWorkshop makes the directory. With race, the programs are built with the
// race detector. A process that watches over the directory removes it should
// this one be killed.
func NewWorkshop(race bool) (*Workshop, error) {
	dir, err := os.MkdirTemp("", "nri-resctrl-") // short: a socket's path has 107 bytes
	if err != nil {
		return nil, err
	}
	s := &Workshop{Dir: dir, race: race, worlds: map[*World]bool{}}
	cmd := exec.Command("/bin/sh", "-c", janitorScript, "world-janitor", dir)
	// A group of its own: an interrupt at the terminal must not end it first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Dir = "/"
	if s.leash, err = cmd.StdinPipe(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the janitor of %s: %w", dir, err), os.RemoveAll(dir))
	}
	s.janitor = cmd
	return s, nil
}

// Build builds the programs, once; it is called by New. It says what is
// missing of the machine, and what installs it.
func (s *Workshop) Build() error {
	s.built.Do(func() { s.err = s.build() })
	return s.err
}

func (s *Workshop) build() error {
	if s.Bin != "" {
		return nil
	}
	s.Bin = filepath.Join(s.Dir, "bin")
	if _, err := exec.LookPath("go"); err != nil {
		return errors.New("the go command is missing: install Go (https://go.dev/doc/install, or sudo apt-get install golang)")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		return errors.New("a C compiler is missing, the database is built with it: sudo apt-get install gcc libc6-dev")
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	args := []string{"build", "-o", s.Bin + "/", "-ldflags", "-X " + module + "/lib/program.version=dev"}
	if s.race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/...")...)
	// Its temporary files go with the directory, whatever becomes of it.
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=1", "TMPDIR="+s.Dir)
	cmd.SysProcAttr = tethered()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := s.start(cmd); err != nil {
		return fmt.Errorf("build the programs: %w", err)
	}
	err = cmd.Wait()
	s.mu.Lock()
	s.builder = nil // its number may be another's from now on
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// start starts the build, unless the workshop is closed already.
func (s *Workshop) start(cmd *exec.Cmd) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return context.Canceled
	}
	s.builder = cmd
	return cmd.Start()
}

// moduleRoot is the directory of this module's go.mod.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if mod == "" || mod == os.DevNull {
		return "", errors.New("find the module: run this inside the repository")
	}
	return filepath.Dir(mod), nil
}

// Program is the path of a built program.
func (s *Workshop) Program(name string) string { return filepath.Join(s.Bin, name) }

// Close ends every world and removes the directory. It may be called while
// other goroutines are still at work, as after an interrupt; every caller
// returns when all is done.
func (s *Workshop) Close() error {
	s.ended.Do(func() { s.endErr = s.end() })
	return s.endErr
}

func (s *Workshop) end() error {
	s.mu.Lock()
	s.closed = true
	if b := s.builder; b != nil && b.Process != nil {
		// The compilers are of its process group, which has no other members.
		syscall.Kill(-b.Process.Pid, syscall.SIGKILL)
	}
	var worlds []*World
	for w := range s.worlds {
		worlds = append(worlds, w)
	}
	s.mu.Unlock()
	var errs []error
	for _, w := range worlds {
		errs = append(errs, w.Close())
	}
	errs = append(errs, os.RemoveAll(s.Dir))
	io.WriteString(s.leash, "done\n")
	s.leash.Close()
	s.janitor.Wait()
	return errors.Join(errs...)
}

// room gives a new world its directory.
func (s *Workshop) room(w *World) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", context.Canceled
	}
	s.serial++
	s.worlds[w] = true
	dir := filepath.Join(s.Dir, fmt.Sprintf("w%d", s.serial))
	return dir, os.Mkdir(dir, 0o755)
}

func (s *Workshop) forget(w *World) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.worlds, w)
}

// tethered makes a child in a process group of its own, so that an interrupt
// at the terminal is ours to handle, which ends with this process at the latest.
func tethered() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
