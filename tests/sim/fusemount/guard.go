package fusemount

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// guard is a small process that detaches the mount when ours ends without
// having done so: its standard input then closes.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// guardScript waits for a line (all is well) or the end of input.
const guardScript = `read -r line && exit 0
if [ "$(id -u)" = 0 ]; then exec umount -l "$1"; else exec fusermount3 -uz "$1"; fi`

func newGuard(dir string) (*guard, error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript, "sim-guard", dir)
	// A group of its own: an interrupt at the terminal must not end it first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Dir = "/"
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the guard of the mount at %s: %w", dir, err)
	}
	return &guard{cmd: cmd, pipe: pipe}, nil
}

func (g *guard) dismiss() {
	_, _ = io.WriteString(g.pipe, "done\n")
	_ = g.pipe.Close()
	_ = g.cmd.Wait()
}
