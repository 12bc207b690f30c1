package applier

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nri-resctrl/nri-resctrl/lib/engine"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
	"github.com/nri-resctrl/nri-resctrl/lib/stream"
)

// RunStdin carries out the records of r until its end. There is nobody to ask
// for a new epoch: a gap or a line that is no record ends it with an error
// whose ExitCode is 65. A snapshot that is cut off by the end changes nothing.
func RunStdin(ctx context.Context, o Options, r io.Reader) error {
	a := newApplier(o, stream.NewReceiver(stream.ReceiverOptions{}))
	if err := a.begin(ctx); err != nil {
		return err
	}
	lines := readLines(ctx, r)
	for n := 1; ; n++ {
		var line []byte
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case l := <-lines:
			line, err = l.text, l.err
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			return &brokenError{fmt.Sprintf("line %d is longer than %d bytes", n, lifecycle.MaxLine)}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read standard input: %w", err)
		}
		if in := a.recv.Line(line); in.Kind != stream.KindNothing {
			if err := a.hold(ctx, func(h *engine.Hold) error { return a.take(h, in, line) }); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		}
		if err != nil {
			return a.end()
		}
	}
}

// line is one line of standard input, or what came before its end.
type line struct {
	text []byte
	err  error
}

// readLines reads beside the one who takes them: nothing else ends a read that
// waits, as of a terminal. It ends with r, or with ctx after the read at work.
func readLines(ctx context.Context, r io.Reader) <-chan line {
	lines := make(chan line)
	go func() {
		in := bufio.NewReaderSize(r, lifecycle.MaxLine)
		for {
			text, err := in.ReadSlice('\n')
			select {
			case lines <- line{bytes.Clone(text), err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// end says whether the input ended where it may.
func (a *Applier) end() error {
	if a.recv.Epoch() != "" && !a.recv.Complete() {
		return &brokenError{"standard input ended inside a snapshot, which changed nothing"}
	}
	if err := a.Engine.Degraded(); err != nil {
		return fmt.Errorf("state could not be written: %w", err)
	}
	return nil
}
