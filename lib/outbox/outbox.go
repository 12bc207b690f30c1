// Package outbox brings the committed event lines to events.jsonl: each once,
// in order, none broken, over crashes and rotations. What was written is
// recorded after it was written; what a crash left between the two is found
// again in the files themselves.
//
// Its caller holds writer.lock: there is one exporter at a time.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// Source is where the lines are committed and the position is recorded.
type Source interface {
	// Unexported gives the lines after a seq, in order, without newlines; at
	// most limit of them, at least one where there is one.
	Unexported(ctx context.Context, after int64, limit int) ([]string, error)
	// Line gives the line of one seq, and whether it is there.
	Line(ctx context.Context, seq int64) (string, bool, error)
	// Renumber gives the events after a seq new ones above another, in order,
	// and none to anybody at or below it.
	Renumber(ctx context.Context, after, above int64) (renumbered int, err error)
	// Position gives the last exported seq and the file and offset from which
	// later lines are to be looked for: where its line ends, or where the first
	// line in another file begins. Inode 0: nothing was recorded. It may be
	// older than what was set last (after a power cut), never newer.
	Position(ctx context.Context) (seq int64, dev, inode uint64, offset int64, err error)
	SetPosition(ctx context.Context, seq int64, dev, inode uint64, offset int64) error
}

// Options of New.
type Options struct {
	LogID  string       // the `log` of the source's lines
	Fsync  bool         // lines are on the disk before their export is recorded
	Group  string       // who may read the log, by name or number; "" is nobody
	Logger *slog.Logger // nil discards
}

// Log is the event log of one source.
type Log struct {
	path   string
	src    Source
	o      Options
	prefix string // of every line of ours

	opened bool // the file was opened once by this process
	// write and sync stand between us and the file, for tests to fail them.
	write func(*os.File, []byte) (int, error)
	sync  func(*os.File) error
}

// New gives the log at path; nothing is opened before Export.
func New(path string, src Source, o Options) *Log {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Log{path: filepath.Clean(path), src: src, o: o, prefix: linePrefix(o.LogID), write: (*os.File).Write, sync: datasync}
}

const (
	// chunkLines bounds one write and one fsync.
	chunkLines = 256
	// maxMoves bounds how often one Export begins again because the file was
	// rotated under it; a rotation takes longer than a round.
	maxMoves = 100
)

// errMoved: the file was rotated between its opening and our write.
var errMoved = errors.New("the file was renamed or removed while it was written")

// Export appends what is not exported yet. What fails is tried again by the
// next Export; nothing is lost by that, it only comes later.
func (l *Log) Export(ctx context.Context) error {
	for moves := 0; ; {
		more, err := l.round(ctx)
		if errors.Is(err, errMoved) && moves < maxMoves {
			moves++
			continue
		}
		if err != nil {
			return fmt.Errorf("export events to %s: %w", l.path, err)
		}
		if !more {
			return nil
		}
	}
}

// round exports one chunk, and says whether there may be more.
func (l *Log) round(ctx context.Context) (more bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	pos, err := l.position(ctx)
	if err != nil {
		return false, err
	}
	lines, err := l.src.Unexported(ctx, pos.seq, chunkLines)
	if err != nil {
		return false, err
	}
	if len(lines) == 0 && l.opened {
		return false, nil
	}
	f, err := l.open()
	if err != nil {
		return false, err
	}
	defer f.Close()
	l.opened = true
	if !l.inPlace(f, pos) {
		if lines, err = l.recover(ctx, f, pos); err != nil {
			return false, err
		}
	}
	if len(lines) == 0 {
		return false, nil
	}
	return true, l.append(ctx, f, lines)
}

// append writes lines in one write and records them, unless the file was
// rotated meanwhile: then only the next round's look at the files tells
// whether they stayed.
func (l *Log) append(ctx context.Context, f *os.File, lines []string) error {
	seq, ok := l.seqOf([]byte(lines[len(lines)-1]))
	if !ok {
		return l.notOurs(lines[len(lines)-1])
	}
	end, err := l.put(f, strings.Join(lines, "\n")+"\n")
	if err != nil {
		return err
	}
	if !l.kept(f, true) {
		return errMoved
	}
	return l.setPosition(ctx, f, seq, end)
}

// put appends b to f, and gives the offset at which it ends.
func (l *Log) put(f *os.File, text string) (end int64, err error) {
	if n, err := l.write(f, []byte(text)); err != nil {
		return 0, fmt.Errorf("wrote %d of %d bytes: %w", n, len(text), err)
	}
	if l.o.Fsync {
		if err := l.sync(f); err != nil {
			return 0, fmt.Errorf("fsync: %w", err)
		}
	}
	// Not the size: somebody else may have appended, or truncated, since.
	return f.Seek(0, io.SeekCurrent)
}

// position is how far the events were exported, as recorded.
type position struct {
	seq        int64
	dev, inode uint64
	offset     int64
}

func (l *Log) position(ctx context.Context) (p position, err error) {
	p.seq, p.dev, p.inode, p.offset, err = l.src.Position(ctx)
	return p, err
}

func (l *Log) setPosition(ctx context.Context, f *os.File, seq, offset int64) error {
	dev, inode, _, err := stat(f)
	if err != nil {
		return err
	}
	return l.src.SetPosition(ctx, seq, dev, inode, offset)
}

// inPlace says whether f ends exactly where the record says, with the
// recorded line: then nothing happened since, which is the rule.
func (l *Log) inPlace(f *os.File, p position) bool {
	dev, inode, size, err := stat(f)
	return err == nil && p.seq > 0 && dev == p.dev && inode == p.inode && size == p.offset && l.endsWith(f, p)
}

func (l *Log) notOurs(line string) error {
	return fmt.Errorf("the source gave a line that is not of log %q: %.200q", l.o.LogID, line)
}
