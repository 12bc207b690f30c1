package fifo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// pipeBuf is PIPE_BUF of Linux (pipe(7)): a write of so many bytes goes into a
// pipe whole or not at all.
const pipeBuf = 4096

// Writer writes lines to a FIFO. One goroutine at a time writes; WaitGone,
// Gone, Changed and Close may be called meanwhile.
type Writer struct {
	*end
	raw syscall.RawConn

	line []byte // of which a part went out
	out  int    // how much of it
}

// OpenWriter opens the FIFO at path for writing. Without a reader it fails with
// ErrNoReader.
func OpenWriter(path string) (*Writer, error) {
	e, err := open(path, unix.O_WRONLY)
	if err != nil {
		return nil, err
	}
	raw, err := e.file.SyscallConn()
	if err != nil {
		_ = e.file.Close()
		return nil, fmt.Errorf("open pipe %s: %w", path, err)
	}
	return &Writer{end: e, raw: raw}, nil
}

// WriteLine writes line, which ends with a newline, and waits while the pipe is
// full until ctx ends. Only nil means that the whole line is in the pipe. If
// ctx ended in the middle of it, calling again with the same line goes on where
// it stopped, and a call with another line finishes the first one before.
// ErrNoReader says that the reader is gone, and with it all that it had not
// read; what went out of the line is forgotten.
func (w *Writer) WriteLine(ctx context.Context, line []byte) error {
	if w.out > 0 {
		same := bytes.Equal(w.line, line)
		if err := w.finish(ctx); err != nil || same {
			return err
		}
	}
	w.line, w.out = append(w.line[:0], line...), 0
	return w.finish(ctx)
}

// finish writes what is left of w.line.
func (w *Writer) finish(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := w.write(false); err != nil {
		return w.ended(ctx, err)
	}
	if len(w.line) == 0 {
		return nil
	}
	defer until(ctx, w.file.SetWriteDeadline)()
	for len(w.line) > 0 {
		if err := w.write(true); err != nil {
			return w.ended(ctx, err)
		}
	}
	return nil
}

// write writes as much of w.line as the pipe takes, waiting for room if it may
// wait. When all is out the line is empty.
func (w *Writer) write(wait bool) error {
	var writeErr error
	err := w.raw.Write(func(fd uintptr) bool {
		for w.out < len(w.line) {
			var n int
			n, writeErr = retry(func() (int, error) { return unix.Write(int(fd), w.line[w.out:]) })
			if writeErr != nil {
				return !wait || !errors.Is(writeErr, unix.EAGAIN)
			}
			w.out += n
		}
		return true
	})
	switch {
	case err != nil: // closed, or the deadline
		return fmt.Errorf("write pipe %s: %w", w.path, err)
	case errors.Is(writeErr, unix.EAGAIN):
		return nil
	case writeErr != nil:
		w.line, w.out = w.line[:0], 0
		return w.wrap(writeErr)
	}
	w.line, w.out = w.line[:0], 0
	return nil
}

// TryWrite writes line with one write(2) and never waits: false says that the
// pipe is full and the line was dropped. A line may have PIPE_BUF (4096) bytes
// at most, so that it goes out whole or not at all.
func (w *Writer) TryWrite(line []byte) (bool, error) {
	if len(line) > pipeBuf {
		return false, fmt.Errorf("write pipe %s: %w: %d bytes do not go out in one piece", w.path, ErrLineTooLong, len(line))
	}
	if w.out > 0 {
		return false, nil // another line is not finished
	}
	var writeErr error
	err := w.raw.Write(func(fd uintptr) bool {
		_, writeErr = retry(func() (int, error) { return unix.Write(int(fd), line) })
		return true
	})
	switch {
	case err != nil:
		return false, w.ended(context.Background(), fmt.Errorf("write pipe %s: %w", w.path, err))
	case errors.Is(writeErr, unix.EAGAIN):
		return false, nil
	case writeErr != nil:
		return false, w.wrap(writeErr)
	}
	return true, nil
}

// Gone tells whether no reader has the pipe open now.
func (w *Writer) Gone() bool {
	gone := true // what is closed has no reader
	_ = w.raw.Control(func(fd uintptr) { gone = noReader(fd) })
	return gone
}

// WaitGone waits until no reader has the pipe open, without writing, and then
// returns ErrNoReader; before that ctx's error when ctx ends, os.ErrClosed
// after Close. A writer that is idle learns it in no other way: EPIPE comes
// only with a write, while poll(2) reports POLLERR. One goroutine at a time
// waits.
func (w *Writer) WaitGone(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	defer until(ctx, w.file.SetReadDeadline)()
	// The runtime's poller tells POLLERR to those who wait for reading too; that
	// way the wait does not stand in the way of those who write. On a full pipe
	// POLLERR comes alone, which it takes for "not pollable" (Go 1.26): also
	// then the reader is gone, or was for a moment.
	err := w.raw.Read(noReader)
	if err != nil && (w.closed.Load() || errors.Is(err, os.ErrDeadlineExceeded)) {
		return w.ended(ctx, err)
	}
	return w.wrap(unix.EPIPE)
}

// noReader asks poll(2) for POLLERR, which a pipe's writing end has while no
// reader is there.
func noReader(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd)}}
	n, err := retry(func() (int, error) { return unix.Poll(fds, 0) })
	return err == nil && n > 0 && fds[0].Revents&unix.POLLERR != 0
}

func (w *Writer) wrap(err error) error {
	if errors.Is(err, unix.EPIPE) {
		err = ErrNoReader
	}
	return fmt.Errorf("write pipe %s: %w", w.path, err)
}
