package watcher

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/fifo"
	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// retryOpen is how often a FIFO that cannot be opened is tried again. A hello
// of the applier has the pipe opened at once.
const retryOpen = time.Second

// errReplaced says that another file has the FIFO's path now.
var errReplaced = errors.New("the path leads to another file")

// pipe is what the actors of the two FIFOs share.
type pipe struct {
	acksOpen signal        // set once the acknowledgements were opened: the pipe may be
	kick     chan struct{} // has a value when the pipe should be tried at once

	mu   sync.Mutex
	open map[opened]context.CancelCauseFunc // ends the use of what is open
}

// opened is an open end of a FIFO.
type opened interface{ Changed() bool }

func newPipe() *pipe {
	return &pipe{acksOpen: newSignal(), kick: make(chan struct{}, 1), open: map[opened]context.CancelCauseFunc{}}
}

// use gives the context for the use of what was opened; it ends when the path
// leads elsewhere, or with done.
func (p *pipe) use(ctx context.Context, o opened) (_ context.Context, end context.CancelCauseFunc, done func()) {
	ctx, end = context.WithCancelCause(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[o] = end
	return ctx, end, func() {
		end(nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, o)
	}
}

// recheck ends the use of what no longer is what its path names, so that it is
// opened again.
func (p *pipe) recheck() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for o, end := range p.open {
		if o.Changed() {
			end(errReplaced)
		}
	}
}

// writeRecords is the actor that writes the pipe.
func (w *Watcher) writeRecords(ctx context.Context, c *core) error {
	select {
	case <-c.pipe.acksOpen.c: // first: a hello must find somebody
	case <-ctx.Done():
		return ctx.Err()
	}
	path := c.cfg.Pipe.Path
	tell := w.teller("no applier can be told of pods: trying again", "pipe", path)
	for ctx.Err() == nil {
		out, err := openPipe(path, fifo.OpenWriter)
		if err != nil {
			tell(err)
			w.pause(ctx, c.pipe.kick)
			continue
		}
		tell(nil)
		err = w.feed(ctx, c, out)
		if ctx.Err() == nil {
			w.logger().Info("the applier no longer reads the pipe", "pipe", path, "reason", err)
		}
	}
	return ctx.Err()
}

// openPipe makes what is missing of the FIFO and opens it.
func openPipe[T any](path string, open func(string) (T, error)) (T, error) {
	if err := fifo.Ensure(filepath.Dir(path), path); err != nil {
		var none T
		return none, err
	}
	return open(path)
}

// feed writes lines until a reader is there no more or ctx ends.
func (w *Watcher) feed(ctx context.Context, c *core, out *fifo.Writer) error {
	defer out.Close()
	ctx, end, done := c.pipe.use(ctx, out)
	defer done()
	var gone sync.WaitGroup
	defer gone.Wait()
	defer done()
	gone.Go(func() { end(out.WaitGone(ctx)) }) // an idle writer hears of it in no other way

	w.logger().Info("an applier reads the pipe", "pipe", c.cfg.Pipe.Path)
	c.pump.open()
	w.tellStatus()
	defer w.tellStatus()
	defer c.pump.broken()
	for {
		line, ok := c.pump.next()
		if ok {
			if err := out.WriteLine(ctx, line); err != nil {
				return whyEnded(ctx, err)
			}
			continue
		}
		select {
		case <-c.pump.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// whyEnded prefers why we ended it to what the end looked like.
func whyEnded(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// readReplies is the actor that reads hellos and acknowledgements.
func (w *Watcher) readReplies(ctx context.Context, c *core) error {
	path := c.cfg.Pipe.AckPath
	tell := w.teller("no applier can be heard: trying again", "ack_pipe", path)
	for ctx.Err() == nil {
		in, err := openPipe(path, fifo.OpenReader)
		if err != nil {
			tell(err)
			w.pause(ctx, nil)
			continue
		}
		tell(nil)
		err = w.takeReplies(ctx, c, in)
		if ctx.Err() == nil {
			w.logger().Info("opening the acknowledgements again", "ack_pipe", path, "reason", err)
		}
	}
	return ctx.Err()
}

// takeReplies reads lines until that fails. A line that is neither a hello nor
// an acknowledgement is nothing: the applier repeats what matters.
func (w *Watcher) takeReplies(ctx context.Context, c *core, in *fifo.Reader) error {
	defer in.Close()
	ctx, _, done := c.pipe.use(ctx, in)
	defer done()
	c.pipe.acksOpen.set()
	for {
		line, err := in.ReadLine(ctx)
		if errors.Is(err, fifo.ErrLineTooLong) {
			continue
		}
		if err != nil {
			return whyEnded(ctx, err)
		}
		if len(line) == 0 {
			continue
		}
		hello, ack, err := lifecycle.DecodeReply(line)
		switch {
		case err != nil:
			w.logger().Debug("a line of the acknowledgements is not understood", "ack_pipe", c.cfg.Pipe.AckPath, "error", err)
		case hello.Hello != "":
			c.pump.hello(hello.Hello)
			select {
			case c.pipe.kick <- struct{}{}: // somebody is there to read the pipe
			default:
			}
		default:
			c.pump.acked(ack)
		}
	}
}

// pause waits before a FIFO is tried again, or until hastened.
func (w *Watcher) pause(ctx context.Context, hasten <-chan struct{}) {
	over, stop := w.clock.After(retryOpen)
	defer stop()
	select {
	case <-over:
	case <-hasten:
	case <-ctx.Done():
	}
}

// teller logs why something does not work, once for each reason in a row.
// Without a reader is how it starts, and no fault.
func (w *Watcher) teller(what string, attrs ...any) func(error) {
	told := ""
	return func(err error) {
		if err == nil || errors.Is(err, fifo.ErrNoReader) {
			if told != "" && err == nil {
				w.logger().Info("it works again", attrs...)
			}
			told = ""
			return
		}
		if reason := fmt.Sprint(err); reason != told {
			told = reason
			w.logger().Warn(what, append(attrs[:len(attrs):len(attrs)], "error", err)...)
		}
	}
}
