package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/nxadm/tail"

	"github.com/nri-resctrl/nri-resctrl/state"
)

// lookEvery is how often the table is asked for what the followed file did not
// bring.
const lookEvery = time.Second

// follower prints events as they come. It follows events.jsonl, and takes the
// table for the truth: an event's number says whether it was printed already,
// and whether one before it is missing. So nothing is told twice where a file
// is read again, and nothing is left out where lines are lost in a rotation
// (between the last read of the old file and the rename, or the truncation).
type follower struct {
	print func(event, string) error // once for every event, in order
	flush func() error
	open  func() (*state.Reader, error)
	path  string        // of events.jsonl
	look  time.Duration // how often to look into the table
	log   *slog.Logger

	reader  *state.Reader // nil where the state cannot be read now
	version int64         // of the state, when it was read last
	file    os.FileInfo   // of path, when it was looked at last; nil: it was away
	renewed bool          // it was another file then than before
	logID   string
	last    int64 // seq of the last event that was passed to print
	told    bool  // that the state cannot be read
}

func (a *app) followEvents(ctx context.Context) error {
	p := a.printer()
	r, err := a.openState()
	if err != nil {
		return err
	}
	after, err := a.after(ctx, r)
	if err != nil {
		r.Close()
		return err
	}
	f := &follower{print: p.print, flush: p.out.Flush, open: a.openState, path: a.cfg.Events.Path,
		look: lookEvery, log: a.log, reader: r}
	return f.run(ctx, after)
}

// run prints the table's events after a seq, then follows until ctx ends.
func (f *follower) run(ctx context.Context, after int64) error {
	defer func() {
		if f.reader != nil {
			f.reader.Close()
		}
	}()
	// The file's end before the table's: what is before it is in the table, as
	// a line is appended only after its row was committed.
	start := lineStart(f.path)
	id, err := f.reader.LogID(ctx)
	if err != nil {
		return err
	}
	f.logID, f.last = id, after
	if err := f.catchUp(ctx); err != nil {
		return ended(ctx, err)
	}
	f.file, _ = os.Stat(f.path)
	t, err := f.tail(start)
	if err != nil {
		return err
	}
	defer func() { stop(t) }()
	lines, look := t.Lines, time.NewTicker(f.look)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case line, ok := <-lines:
			if !ok { // it gives up when the file is away for the moment of a rotation
				f.log.Debug("following the event log again", "path", f.path, "error", t.Err())
				lines = nil
				continue
			}
			err = f.line(ctx, line.Text)
		case <-look.C:
			if f.rotated() || lines == nil {
				stop(t)
				if t, err = f.tail(0); err != nil {
					return err
				}
				lines = t.Lines
			}
			err = f.catchUp(ctx)
		}
		if err := errors.Join(err, f.flush()); err != nil {
			return ended(ctx, err)
		}
	}
}

// ended is nil where the error is only that a person has seen enough.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// tail follows the file from an offset. It polls: a node full of pods is often
// out of inotify instances, and this library then ends the process (v1.4.11).
func (f *follower) tail(start int64) (*tail.Tail, error) {
	return tail.TailFile(f.path, tail.Config{
		Location: &tail.SeekInfo{Offset: start, Whence: io.SeekStart},
		Follow:   true, ReOpen: true, Poll: true, CompleteLines: true,
		Logger: tail.DiscardingLogger,
	})
}

// stop ends following. Tail's own Cleanup would start the inotify that we avoid.
func stop(t *tail.Tail) {
	if t != nil {
		_ = t.Stop() // its error is that of the following, which ended
	}
}

// rotated says, one look after it happened, that path is another file now. A
// tail that was between its last read and the start of its watch at that moment
// stays on the old file (v1.4.11); a look later it has read what that one had.
func (f *follower) rotated() bool {
	now, err := os.Stat(f.path)
	if err != nil {
		now = nil
	}
	before, again := f.file, f.renewed
	f.file = now
	f.renewed = now != nil && (before == nil || !os.SameFile(before, now))
	return again && !f.renewed
}

// line takes a line of the file. What is no event of this log's is not ours to
// tell: half a line where the file was cut, or what an earlier database wrote.
func (f *follower) line(ctx context.Context, text string) error {
	var e event
	if json.Unmarshal([]byte(text), &e) != nil || e.Seq <= 0 {
		return nil
	}
	if e.Log != f.logID {
		return f.catchUp(ctx) // the database may be a new one
	}
	if e.Seq <= f.last {
		return nil
	}
	if e.Seq > f.last+1 {
		if err := f.fill(ctx, e.Seq); err != nil {
			return err
		}
	}
	f.last = e.Seq
	return f.print(e, text)
}

// fill prints from the table the events before seq that the file did not bring.
func (f *follower) fill(ctx context.Context, seq int64) error {
	if !f.readable(ctx) {
		return nil
	}
	if err := f.fromTable(ctx, seq); err != nil {
		return err
	}
	if f.last != seq-1 {
		// A number that was never told (its transaction failed), or pruned.
		f.log.Debug("events are in the state no more", "after_seq", f.last, "before_seq", seq)
	}
	return nil
}

// catchUp prints what the table has more, if it changed.
func (f *follower) catchUp(ctx context.Context) error {
	if !f.readable(ctx) {
		return nil
	}
	version, err := f.reader.Version(ctx)
	if err == nil && version == f.version {
		return nil
	}
	if err == nil {
		err = f.fromTable(ctx, 0)
	}
	if err == nil {
		f.version = version
	}
	return f.flushed(err)
}

func (f *follower) flushed(err error) error { return errors.Join(err, f.flush()) }

// fromTable prints the table's events after the last one, and before a seq
// where that is not 0.
func (f *follower) fromTable(ctx context.Context, before int64) error {
	err := pages(ctx, f.reader, state.EventFilter{After: f.last, Before: before}, func(row state.EventRow) error {
		var e event
		if err := json.Unmarshal([]byte(row.Line), &e); err != nil {
			f.log.Warn("an event of the state is damaged", "seq", row.Seq, "error", err)
			f.last = row.Seq
			return nil
		}
		f.last = row.Seq
		if err := f.print(e, row.Line); err != nil {
			return printError{err}
		}
		return nil
	})
	var pe printError
	if errors.As(err, &pe) || ctx.Err() != nil {
		return err
	}
	if err != nil {
		f.drop(err)
	}
	return nil
}

// printError is an error of printing, among errors of reading.
type printError struct{ error }

// readable opens the state again where it is another file now, or could not be
// read. A new log starts anew.
func (f *follower) readable(ctx context.Context) bool {
	if f.reader != nil && f.reader.Replaced() {
		f.reader.Close()
		f.reader = nil
	}
	if f.reader != nil {
		return true
	}
	r, err := f.open()
	if err != nil {
		f.drop(err)
		return false
	}
	id, err := r.LogID(ctx)
	if err != nil || id == "" {
		r.Close()
		return false
	}
	if id != f.logID {
		f.log.Info("the state was made anew: events begin a new log", "log", id)
		f.logID, f.last = id, 0
	}
	f.reader, f.version, f.told = r, 0, false
	return true
}

// drop goes on without the state, which is told once.
func (f *follower) drop(err error) {
	if f.reader != nil {
		f.reader.Close()
		f.reader = nil
	}
	if !f.told {
		f.log.Warn("the state cannot be read now; the event log is followed alone", "error", err)
		f.told = true
	}
}

// maxLine bounds the search for the start of the last line, in bytes; an event
// is far shorter.
const maxLine = 1 << 20

// lineStart is where the last, unfinished line of the file begins, which is
// mostly its end; 0 where there is no file.
func lineStart(path string) int64 {
	file, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer file.Close()
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0
	}
	tailLen := min(end, maxLine)
	buf := make([]byte, tailLen)
	n, err := file.ReadAt(buf, end-tailLen)
	if err != nil && err != io.EOF {
		return end
	}
	return end - tailLen + int64(bytes.LastIndexByte(buf[:n], '\n')+1)
}
