package watcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pollEvery is how often a write that waits for the reader of standard output
// looks whether it is still wanted.
const pollEvery = 200 * time.Millisecond

// pipeChunk is what a pipe takes at once when poll(2) says that it is writable
// (PIPE_BUF).
const pipeChunk = 4096

// toStdout is the actor of --stdout: the same lines, nobody to answer.
func (w *Watcher) toStdout(ctx context.Context, c *core) error {
	c.pump.open()
	for {
		line, ok := c.pump.next()
		if !ok {
			select {
			case <-c.pump.wake:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := writeAll(ctx, w.opts.Stdout, line); err != nil {
			if errors.Is(err, context.Canceled) {
				return err
			}
			return unavailable(fmt.Errorf("write a record to standard output: %w", err))
		}
	}
}

// writeAll writes the line and ends with ctx also where the reader does not
// read. Standard output is shared with others (a terminal, a shell's pipe), so
// it is not made non-blocking; it is asked before each write.
func writeAll(ctx context.Context, out io.Writer, line []byte) error {
	file, ok := out.(*os.File)
	if !ok {
		_, err := out.Write(line)
		return err
	}
	for len(line) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		fds := []unix.PollFd{{Fd: int32(file.Fd()), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, int(pollEvery.Milliseconds()))
		if errors.Is(err, unix.EINTR) || err == nil && n == 0 {
			continue
		}
		if err != nil {
			return err
		}
		n, err = file.Write(line[:min(len(line), pipeChunk)])
		if err != nil {
			return err
		}
		line = line[n:]
	}
	return nil
}
