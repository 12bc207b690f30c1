package attribution

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Process is a running workload; see workload/workload.c for what it obeys.
type Process struct {
	PID int

	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// Start starts a workload in a cgroup, given by its directory, as a child of this
// test: born outside every group of ours, as a runtime's child is. "" is the
// test's own cgroup.
func (n *Node) Start(cgroup string) *Process {
	n.t.Helper()
	return n.StartAs(cgroup, 0)
}

// StartAs is Start for another user.
func (n *Node) StartAs(cgroup string, uid uint32) *Process {
	n.t.Helper()
	p := &Process{t: n.t, cmd: exec.Command(filepath.Join(n.Bin, "workload"))}
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if uid != 0 {
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	}
	if cgroup != "" {
		dir, err := os.Open(cgroup)
		n.must(err)
		defer dir.Close()
		p.cmd.SysProcAttr.UseCgroupFD, p.cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	var err error
	p.in, err = p.cmd.StdinPipe()
	n.must(err)
	out, err := p.cmd.StdoutPipe()
	n.must(err)
	p.out = bufio.NewScanner(out)
	p.out.Buffer(nil, 1<<20)
	n.must(p.cmd.Start())
	p.PID = p.cmd.Process.Pid
	n.t.Cleanup(p.End)
	return p
}

// Do gives an order and waits for its answer.
func (p *Process) Do(format string, args ...any) string {
	p.t.Helper()
	order := fmt.Sprintf(format, args...)
	if _, err := fmt.Fprintln(p.in, order); err != nil {
		p.t.Fatalf("workload %d, %s: %v", p.PID, order, err)
	}
	return p.line(order)
}

func (p *Process) line(order string) string {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatalf("workload %d ended at %s: %v", p.PID, order, p.out.Err())
	}
	return p.out.Text()
}

// IDs gives an order whose answer is ids.
func (p *Process) IDs(format string, args ...any) []int {
	p.t.Helper()
	var ids []int
	for _, word := range strings.Fields(p.Do(format, args...)) {
		id, err := strconv.Atoi(word)
		if err != nil {
			p.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// Number gives an order whose answer is one number.
func (p *Process) Number(format string, args ...any) int {
	p.t.Helper()
	return p.IDs(format, args...)[0]
}

// End kills and reaps it. It may be called twice.
func (p *Process) End() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.in.Close()
	_ = p.cmd.Wait()
	p.cmd = nil
}
