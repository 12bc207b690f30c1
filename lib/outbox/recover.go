package outbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
)

// maxLine bounds what is kept of one line: a record of the pipe is at most
// 1 MiB, and JSON makes at most six bytes of one.
const maxLine = 16 << 20

// candidate is a file that may hold lines of ours after the recorded one.
type candidate struct {
	file *os.File
	from int64 // the start of a line
}

// recover finds out what was written since the recorded position: it completes
// a torn line, records what it found, and says after which seq to go on and
// whether the present file needs a newline first.
func (l *Log) recover(ctx context.Context, present *os.File, pos position) (after int64, newline bool, err error) {
	files, err := l.candidates(present, pos)
	if err != nil {
		return 0, false, err
	}
	defer func() {
		for _, c := range files {
			if c.file != present {
				c.file.Close()
			}
		}
	}()
	seed := maphash.MakeSeed()
	tails := make([]tail, len(files))
	for i, c := range files {
		if tails[i], err = l.scan(c, pos.seq, seed); err != nil {
			return 0, false, fmt.Errorf("read %s: %w", c.file.Name(), err)
		}
	}
	after, at := goOn(pos.seq, tails)
	if err := l.reconcile(ctx, pos.seq, after, tails, seed); err != nil {
		return 0, false, err
	}
	if at >= 0 {
		if err := l.setPosition(ctx, files[at].file, after, tails[at].end); err != nil {
			return 0, false, err
		}
	} else if pos.inode == 0 {
		// Before the first line, so that a crash and a rotation after it find it.
		if err := l.setPosition(ctx, present, 0, tails[len(tails)-1].lineStart); err != nil {
			return 0, false, err
		}
	}
	return l.repair(ctx, files, tails, after)
}

// repair completes a torn line, in whichever file it is.
func (l *Log) repair(ctx context.Context, files []candidate, tails []tail, after int64) (int64, bool, error) {
	next, err := l.src.Unexported(ctx, after, 1)
	if err != nil {
		return 0, false, err
	}
	var first string
	if len(next) > 0 {
		first = next[0]
	}
	r := planRepair(first, tails)
	if r.complete < 0 {
		return after, r.newline, nil
	}
	f := files[r.complete].file
	seq, ok := l.seqOf([]byte(first))
	if !ok {
		return 0, false, fmt.Errorf("the source gave a line that is not of log %q: %.200q", l.o.LogID, first)
	}
	end, err := l.put(f, []byte(r.missing))
	if r.complete < len(files)-1 && sealed(err) {
		// Somebody sealed the rotated file. Waiting for ever would keep
		// every later event from its readers.
		l.o.Logger.Error("a line cut off by a crash cannot be completed in a rotated log; the whole line follows in the present one",
			"path", f.Name(), "seq", seq, "error", err)
		return after, r.newline, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("complete the torn line of event %d in %s: %w", seq, f.Name(), err)
	}
	l.o.Logger.Info("completed a line that was cut off", "path", f.Name(), "seq", seq, "missing_bytes", len(r.missing))
	return seq, r.newline, l.setPosition(ctx, f, seq, end)
}

// reconcile makes sure that the lines found in the files are the source's. A
// database that lost commits (a damaged WAL, an old copy put back) would use
// their seqs again: its events then get new ones above them.
func (l *Log) reconcile(ctx context.Context, recorded, highest int64, tails []tail, seed maphash.Seed) error {
	if highest == recorded {
		return nil
	}
	same := func(f found) (bool, error) {
		line, ok, err := l.src.Line(ctx, f.seq)
		return ok && maphash.String(seed, line) == f.sum, err
	}
	common, err := lastCommon(recorded, tails, same)
	if err != nil || common == highest {
		return err
	}
	n, err := l.src.Renumber(ctx, common, highest)
	if err != nil {
		return err
	}
	l.o.Logger.Error("the event log has events that the state database lost; later ones go on above them",
		"path", l.path, "lost_after_seq", common, "lost_to_seq", highest, "renumbered", n)
	return nil
}

// scan reads a candidate to its end. Lines of any length pass in bounded memory.
func (l *Log) scan(c candidate, recorded int64, seed maphash.Seed) (tail, error) {
	t := tail{lineStart: c.from}
	r := bufio.NewReaderSize(io.NewSectionReader(c.file, c.from, 1<<62), 64<<10)
	at := c.from
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		at += int64(len(part))
		if room := maxLine - len(line); len(part) <= room {
			line = append(line, part...)
		} else {
			line = append(line, part[:max(room, 0)]...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			t.torn = line
			return t, nil
		case err != nil:
			return t, err
		default:
			t.add(l, line[:len(line)-1], at, recorded, seed)
			t.lineStart, line = at, line[:0]
		}
	}
}

// add takes in one whole line that ends at an offset.
func (t *tail) add(l *Log, line []byte, end, recorded int64, seed maphash.Seed) {
	seq, ok := l.seqOf(line)
	if !ok {
		return
	}
	if seq > t.highest {
		t.highest, t.end = seq, end
	}
	if seq > recorded {
		t.own = append(t.own, found{seq: seq, sum: maphash.Bytes(seed, line)})
	}
}

// endsWith says whether the line that ends at the recorded offset of f is the
// recorded one: inodes are used again, and files truncated.
func (l *Log) endsWith(f *os.File, p position) bool {
	for size := int64(4 << 10); ; size *= 16 {
		from := max(p.offset-size, 0)
		b := make([]byte, p.offset-from)
		if _, err := f.ReadAt(b, from); err != nil || len(b) == 0 || b[len(b)-1] != '\n' {
			return false
		}
		b = b[:len(b)-1]
		for i := len(b) - 1; i >= 0; i-- {
			if b[i] == '\n' {
				seq, ok := l.seqOf(b[i+1:])
				return ok && seq == p.seq
			}
		}
		if from == 0 {
			seq, ok := l.seqOf(b)
			return ok && seq == p.seq
		}
		if size > maxLine {
			return false
		}
	}
}
