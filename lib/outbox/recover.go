package outbox

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"strings"
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
// a torn line, records what it found, and gives the lines to be appended now.
func (l *Log) recover(ctx context.Context, present *os.File, pos position) ([]string, error) {
	files, err := l.candidates(present, pos)
	if err != nil {
		return nil, err
	}
	if files[0].file != present {
		defer files[0].file.Close()
	}
	seed := maphash.MakeSeed()
	tails := make([]tail, len(files))
	for i, c := range files {
		if tails[i], err = l.scan(c, pos.seq, seed); err != nil {
			return nil, fmt.Errorf("read %s: %w", c.file.Name(), err)
		}
	}
	after, at := goOn(pos.seq, tails)
	if err := l.reconcile(ctx, pos.seq, after, tails, seed); err != nil {
		return nil, err
	}
	if at >= 0 {
		if err := l.setPosition(ctx, files[at].file, after, tails[at].end); err != nil {
			return nil, err
		}
	}
	next, err := l.src.Unexported(ctx, after, 1)
	if err != nil || len(next) == 0 {
		return nil, err // what is not ours at the end is left until we append
	}
	seq, err := l.complete(ctx, next[0], files, tails)
	if err != nil {
		return nil, err
	}
	lines, err := l.src.Unexported(ctx, max(after, seq), chunkLines)
	if err != nil || len(lines) == 0 {
		return nil, err
	}
	// Before the first line goes to this file, so that it is found there
	// whatever happens next to us and to the file's name.
	end, err := l.lineStart(present)
	if err != nil {
		return nil, err
	}
	return lines, l.setPosition(ctx, present, max(after, seq), end)
}

// complete finishes next where it was torn, in whichever file, and gives its
// seq; 0 when it was not begun.
func (l *Log) complete(ctx context.Context, next string, files []candidate, tails []tail) (int64, error) {
	i, missing := torn(next, tails)
	if i < 0 {
		return 0, nil
	}
	f := files[i].file
	seq, ok := l.seqOf([]byte(next))
	if !ok {
		return 0, l.notOurs(next)
	}
	end, err := l.put(f, missing)
	if i < len(files)-1 && sealed(err) {
		// Waiting for ever would keep every later event from its readers.
		l.o.Logger.Error("a line cut off by a crash cannot be completed in a rotated log; the whole line follows in the present one",
			"path", f.Name(), "seq", seq, "error", err)
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("complete the torn line of event %d in %s: %w", seq, f.Name(), err)
	}
	if end != tails[i].size+int64(len(missing)) {
		// Truncated, or written to by somebody else, since we read it. Bytes
		// that now are all of the file are no line: away with them.
		if end == int64(len(missing)) {
			if err := f.Truncate(0); err != nil {
				return 0, err
			}
		}
		return 0, errMoved
	}
	if !l.kept(f, i == len(files)-1) {
		return 0, errMoved
	}
	l.o.Logger.Info("completed a line that was cut off", "path", f.Name(), "seq", seq, "missing_bytes", len(missing))
	return seq, l.setPosition(ctx, f, seq, end)
}

// lineStart makes sure that f ends where a line may begin, and gives its end:
// what is there without a newline, and is not ours, must not break our line.
func (l *Log) lineStart(f *os.File) (int64, error) {
	_, _, size, err := stat(f)
	if err != nil || size == 0 {
		return 0, err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, size-1); err != nil {
		return 0, err
	}
	if last[0] == '\n' {
		return size, nil
	}
	return l.put(f, "\n")
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
	var t tail
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
			t.torn, t.size = line, at
			return t, nil
		case err != nil:
			return t, err
		default:
			t.add(l, line[:len(line)-1], at, recorded, seed)
			line = line[:0]
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
		start := bytes.LastIndexByte(b, '\n') + 1
		if start == 0 && from > 0 && size <= maxLine {
			continue
		}
		seq, ok := l.seqOf(b[start:])
		return ok && seq == p.seq
	}
}

// beginsAt says whether a line of ours, or a part of one, begins at the
// recorded offset of f: so it is when the record was made for this file before
// the first line went there.
func (l *Log) beginsAt(f *os.File, p position) bool {
	from := max(p.offset-1, 0)
	b := make([]byte, p.offset-from+int64(len(l.prefix)))
	n, err := f.ReadAt(b, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	b = b[:n]
	if p.offset > 0 {
		if n == 0 || b[0] != '\n' {
			return false
		}
		b = b[1:]
	}
	if len(b) == 0 {
		return p.seq == 0 // nothing can be before it; else only a line tells
	}
	return strings.HasPrefix(l.prefix, string(b))
}
