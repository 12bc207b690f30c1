package applier

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/nri-resctrl/nri-resctrl/lib/fifo"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// acks is the second FIFO. What cannot be sent at once is dropped: a hello is
// repeated, and a start waits for its acknowledgement only so long.
type acks struct {
	path string
	log  interface{ Warn(string, ...any) }
	w    *fifo.Writer
	told string
}

func (k *acks) send(v any) {
	line, err := lifecycle.Encode(v)
	if err != nil || !k.open() {
		return
	}
	if _, err := k.w.TryWrite(line); err != nil {
		k.close()
	}
}

func (k *acks) open() bool {
	if k.w != nil {
		return true
	}
	w, err := openEnsured(k.path, fifo.OpenWriter)
	if errors.Is(err, fifo.ErrNoReader) {
		return false // the watcher is away
	}
	if err != nil {
		if k.told != err.Error() {
			k.told = err.Error()
			k.log.Warn("no acknowledgements: container starts do not wait for their group", "error", err)
		}
		return false
	}
	k.w, k.told = w, ""
	return true
}

func (k *acks) refresh() {
	if k.w != nil && k.w.Changed() {
		k.close()
	}
}

func (k *acks) close() {
	if k.w != nil {
		k.w.Close()
		k.w = nil
	}
}

// openEnsured opens a FIFO that whoever comes first makes.
func openEnsured[T any](path string, open func(string) (T, error)) (end T, err error) {
	if err := fifo.Ensure(filepath.Dir(path), path); err != nil {
		return end, err
	}
	return open(path)
}

// pipe is the first FIFO.
type pipe struct {
	path string
	log  interface{ Error(string, ...any) }
	r    *fifo.Reader
	told string
}

// open opens the pipe, if it is not, and says whether it did.
func (p *pipe) open() bool {
	if p.r != nil {
		return false
	}
	r, err := openEnsured(p.path, fifo.OpenReader)
	if err != nil {
		p.tell(fmt.Errorf("open the pipe: %w", err))
		return false
	}
	p.r, p.told = r, ""
	return true
}

func (p *pipe) tell(err error) {
	if p.told != err.Error() {
		p.told = err.Error()
		p.log.Error("no records can be read; trying again", "error", err)
	}
}

// read waits for a line. Without an open pipe it waits for ctx.
func (p *pipe) read(ctx context.Context) ([]byte, error) {
	if p.r == nil {
		<-ctx.Done()
		return nil, context.DeadlineExceeded
	}
	return p.r.ReadLine(ctx)
}

func (p *pipe) tryRead() ([]byte, bool, error) {
	if p.r == nil {
		return nil, false, nil
	}
	return p.r.TryReadLine()
}

// fail closes a pipe that cannot be read.
func (p *pipe) fail(err error) {
	p.tell(err)
	p.close()
}

// refresh closes a pipe whose path is another file now.
func (p *pipe) refresh() {
	if p.r != nil && p.r.Changed() {
		p.close()
	}
}

func (p *pipe) close() {
	if p.r != nil {
		p.r.Close()
		p.r = nil
	}
}
