package fifo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// firstBuffer is what a Reader's buffer starts with: what a pipe holds by
// default (pipe(7)). It grows to lifecycle.MaxLine when a line needs it.
const firstBuffer = 64 << 10

// Reader reads lines from a FIFO. It is for one goroutine, except Close and
// Changed.
type Reader struct {
	*end
	raw syscall.RawConn

	buf      []byte // buf[:n] was read and not given out
	n        int
	given    int  // bytes at the front that the last call gave out
	scanned  int  // bytes after given without a newline
	skipping bool // the rest of a line that is too long is dropped
}

// OpenReader opens the FIFO at path for reading. It holds a writing end as
// well (O_RDWR), so that the last writer's going is not the end of the file.
func OpenReader(path string) (*Reader, error) {
	e, err := open(path, unix.O_RDWR)
	if err != nil {
		return nil, err
	}
	raw, err := e.file.SyscallConn()
	if err != nil {
		_ = e.file.Close()
		return nil, fmt.Errorf("open pipe %s: %w", path, err)
	}
	return &Reader{end: e, raw: raw, buf: make([]byte, firstBuffer)}, nil
}

// ReadLine returns the next line, without its newline, and waits for it until
// ctx ends. The line is valid until the next call. A line that is longer than
// lifecycle.MaxLine gives ErrLineTooLong, once, and is dropped to its end. After
// Close the error is os.ErrClosed.
func (r *Reader) ReadLine(ctx context.Context) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if line, ok, err := r.TryReadLine(); ok || err != nil {
		return line, err
	}
	defer until(ctx, r.file.SetReadDeadline)()
	for {
		if _, err := r.fill(true); err != nil {
			return nil, r.ended(ctx, err)
		}
		if line, ok, err := r.cut(); ok || err != nil {
			return line, err
		}
	}
}

// TryReadLine is ReadLine without waiting: false says that no whole line is in
// the pipe now.
func (r *Reader) TryReadLine() (line []byte, ok bool, err error) {
	for {
		if line, ok, err := r.cut(); ok || err != nil {
			return line, ok, err
		}
		got, err := r.fill(false)
		if err != nil {
			return nil, false, r.ended(context.Background(), err)
		}
		if !got {
			return nil, false, nil
		}
	}
}

// cut takes the next line out of the buffer.
func (r *Reader) cut() (line []byte, ok bool, err error) {
	for {
		rest := r.buf[r.given:r.n]
		i := bytes.IndexByte(rest[r.scanned:], '\n')
		if i < 0 {
			r.scanned = len(rest)
			break
		}
		line := rest[:r.scanned+i]
		r.given += len(line) + 1
		r.scanned = 0
		if !r.skipping {
			return line, true, nil
		}
		r.skipping = false // that was the end of the line that is too long
	}
	if r.skipping {
		r.given, r.n, r.scanned = 0, 0, 0
	}
	if r.scanned >= lifecycle.MaxLine { // with its newline it is longer
		r.skipping = true
		r.given, r.n, r.scanned = 0, 0, 0
		return nil, false, fmt.Errorf("read pipe %s: %w (more than %d bytes)", r.path, ErrLineTooLong, lifecycle.MaxLine)
	}
	return nil, false, nil
}

// fill reads what there is, once. Without waiting false says that there is
// nothing.
func (r *Reader) fill(wait bool) (got bool, err error) {
	r.makeRoom()
	var n int
	var readErr error
	err = r.raw.Read(func(fd uintptr) bool {
		n, readErr = retry(func() (int, error) { return unix.Read(int(fd), r.buf[r.n:]) })
		return !wait || !errors.Is(readErr, unix.EAGAIN)
	})
	switch {
	case err != nil: // closed, or the deadline
		return false, fmt.Errorf("read pipe %s: %w", r.path, err)
	case errors.Is(readErr, unix.EAGAIN):
		return false, nil
	case readErr != nil:
		return false, fmt.Errorf("read pipe %s: %w", r.path, readErr)
	case n == 0: // cannot be while we hold a writing end
		return false, fmt.Errorf("read pipe %s: %w", r.path, io.ErrUnexpectedEOF)
	}
	r.n += n
	return true, nil
}

// makeRoom moves what was not given out to the front, and lets the buffer grow
// when one line fills it.
func (r *Reader) makeRoom() {
	r.n = copy(r.buf, r.buf[r.given:r.n])
	r.given = 0
	if r.n == len(r.buf) {
		grown := make([]byte, min(2*len(r.buf), lifecycle.MaxLine))
		copy(grown, r.buf)
		r.buf = grown
	}
}
