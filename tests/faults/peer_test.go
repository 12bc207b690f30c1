//go:build faults

package faults

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/faults/tracer"
	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// peer is what stands at the other ends of an applier's FIFOs.
type peer struct {
	c          *cell
	pipe, acks *os.File
	heard      []byte
}

// newPeer makes the FIFOs and opens both for both, so that they keep what is
// in them.
func (c *cell) newPeer() *peer {
	c.t.Helper()
	p := &peer{c: c}
	for path, f := range map[string]**os.File{c.Pipe(): &p.pipe, c.AckPipe(): &p.acks} {
		if err := syscall.Mkfifo(path, 0o600); err != nil && !errors.Is(err, syscall.EEXIST) {
			c.t.Fatal(err)
		}
		var err error
		*f, err = os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
		c.must(err)
	}
	c.t.Cleanup(p.close)
	return p
}

func (p *peer) close() {
	p.pipe.Close()
	p.acks.Close()
}

// put writes into the pipe.
func (p *peer) put(text string) error {
	p.pipe.SetWriteDeadline(time.Now().Add(time.Minute))
	_, err := io.WriteString(p.pipe, text)
	return err
}

var helloLine = regexp.MustCompile(`(?m)^\{"hello":"([^"]+)"\}$`)

// errSilent: nothing more is in the FIFO of acknowledgements, and its writer has
// ended.
var errSilent = errors.New("the applier has ended")

// listen reads what is in the FIFO of acknowledgements, or comes into it before
// the deadline or the applier's end; of d nil none is waited for.
func (p *peer) listen(deadline time.Time, d *traced) error {
	buf := make([]byte, 64<<10)
	for {
		p.acks.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		over := d != nil && !d.alive() // before the read: it takes what was left
		n, err := p.acks.Read(buf)
		p.heard = append(p.heard, buf[:n]...)
		switch {
		case n > 0:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case over:
			return errSilent
		case time.Now().After(deadline):
			return err
		}
	}
}

// hello waits for a hello that is newer than those heard before.
func (p *peer) hello() (string, error) { return p.helloOf(nil) }

// helloOf is hello; it gives errSilent when d has ended without one.
func (p *peer) helloOf(d *traced) (string, error) {
	p.heard = nil
	for deadline := time.Now().Add(time.Minute); ; {
		if err := p.listen(deadline, d); err != nil {
			return "", fmt.Errorf("no hello: %w", err)
		}
		if all := helloLine.FindAllSubmatch(p.heard, -1); len(all) > 0 {
			return string(all[len(all)-1][1]), nil
		}
	}
}

// answer waits for a hello and gives the node's snapshot for it.
func (p *peer) answer(pods, containers []fields) error {
	id, err := p.hello()
	if err != nil {
		return err
	}
	w := p.c.wire()
	w.snapshot(id, pods, containers)
	return p.put(w.String())
}

// traced is an applier under the tracer.
type traced struct {
	c       *cell
	cmd     *exec.Cmd
	report  string
	logPath string
	ended   chan struct{} // closed when it was reaped
	err     error         // valid then
}

func (c *cell) startTraced(plan tracer.Plan) (*traced, error) {
	d := &traced{
		c: c, report: filepath.Join(c.Dir, "log", "daemon.json"), logPath: filepath.Join(c.Dir, "log", "traced.log"), ended: make(chan struct{}),
	}
	log, err := os.Create(d.logPath)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if d.cmd, err = tracer.Command(plan, d.report, shop.Program(world.ApplierProgram), "--config", c.ConfigFile()); err != nil {
		return nil, err
	}
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		d.err = d.cmd.Wait()
		close(d.ended)
	}()
	return d, nil
}

// alive says whether it has not ended.
func (d *traced) alive() bool {
	select {
	case <-d.ended:
		return false
	default:
		return true
	}
}

// all is what the applier said, tail the end of it.
func (d *traced) all() string {
	text, _ := os.ReadFile(d.logPath)
	return string(text)
}

func (d *traced) tail() string { return d.all()[max(0, len(d.all())-4000):] }

// memory is the most that the applier had, in bytes.
func (d *traced) memory() int {
	d.c.t.Helper()
	pid, err := os.ReadFile(d.report + ".pid")
	d.c.must(err)
	status, err := os.ReadFile("/proc/" + string(pid) + "/status")
	d.c.must(err)
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		d.c.t.Fatal("no VmHWM")
	}
	n, err := strconv.Atoi(string(m[1]))
	d.c.must(err)
	return n << 10
}

// stop asks the applier to end; anything but a clean end is an error.
func (d *traced) stop() tracer.Report {
	d.c.t.Helper()
	if d.alive() {
		syscall.Kill(-d.cmd.Process.Pid, syscall.SIGTERM)
	}
	if <-d.ended; d.err != nil {
		d.c.t.Errorf("the applier's end: %v\n%s", d.err, d.tail())
	}
	return d.seen()
}

// seen is the tracer's report of one that has ended.
func (d *traced) seen() tracer.Report {
	d.c.t.Helper()
	r, err := tracer.Read(d.report)
	d.c.must(err)
	return r
}
