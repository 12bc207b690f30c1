package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// bench is a source, a log and a directory, for one plain story.
type bench struct {
	*testing.T
	path   string
	src    *memory
	log    *Log
	logged *bytes.Buffer
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, path: filepath.Join(t.TempDir(), "events.jsonl"), src: &memory{}, logged: new(bytes.Buffer)}
	b.restart()
	return b
}

func (b *bench) restart() {
	b.log = New(b.path, b.src, Options{LogID: testLog, Logger: slog.New(slog.NewTextHandler(b.logged, nil))})
}

func (b *bench) export() {
	b.Helper()
	if err := b.log.Export(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// crash exports until write, which must fail with errCrash, and starts anew.
func (b *bench) crash(write func(*os.File, []byte) (int, error)) {
	b.Helper()
	b.log.write = write
	if err := b.log.Export(context.Background()); !errors.Is(err, errCrash) {
		b.Fatalf("export = %v, want to be killed", err)
	}
	b.restart()
}

// lines gives committed lines as the log should have them.
func (b *bench) lines(seqs ...int64) string {
	b.Helper()
	var out strings.Builder
	for _, seq := range seqs {
		line, ok, _ := b.src.Line(context.Background(), seq)
		if !ok {
			b.Fatalf("no line %d", seq)
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

func (b *bench) want(name, content string) {
	b.Helper()
	got, err := os.ReadFile(name)
	if err != nil {
		b.Fatal(err)
	}
	if string(got) != content {
		b.Fatalf("%s holds\n%q\nwant\n%q\nlogged: %s", filepath.Base(name), got, content, b.logged)
	}
}

func (b *bench) append(name, text string) {
	b.Helper()
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) rename() string {
	b.Helper()
	to := b.path + ".1"
	b.must(os.Rename(b.path, to))
	return to
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func TestExportDrainsMoreThanOneChunk(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var want strings.Builder
	for i := range 2*chunkLines + 7 {
		b.src.add(i)
		want.WriteString(b.lines(int64(i + 1)))
	}
	b.export()
	b.want(b.path, want.String())
	b.export()
	b.want(b.path, want.String())
}

func TestTornLineIsCompletedUnderItsRotatedName(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.src.add(1, 2, 3)
	b.export()
	b.src.add(4, 5)
	b.crash(cutWrite(30))
	rotated := b.rename()
	b.export()
	b.want(rotated, b.lines(1, 2, 3, 4))
	b.want(b.path, b.lines(5))
}

func TestTornLineThatSomebodyEndedIsWrittenAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.src.add(1)
	b.export()
	b.src.add(2)
	b.crash(cutWrite(50)) // with its whole seq
	b.append(b.path, "\n")
	b.export()
	b.want(b.path, b.lines(1)+b.lines(2)[:50]+"\n"+b.lines(2))
}

func TestForeignTailIsEndedFirst(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{"foreign", `{"log":"another","seq":`, "\x00\x00\x00", strings.Repeat("x", 70<<10)} {
		b := newBench(t)
		b.append(b.path, tail)
		b.src.add(1)
		b.export()
		b.want(b.path, tail+"\n"+b.lines(1))
		b.append(b.path, tail)
		b.export() // nothing of ours to write: not ours to touch
		b.want(b.path, tail+"\n"+b.lines(1)+tail)
		b.src.add(2)
		b.export()
		b.want(b.path, tail+"\n"+b.lines(1)+tail+"\n"+b.lines(2))
	}
}

// A file of the recorded size that is not the recorded one.
func TestSameSizeIsNotTheSameFile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.src.add(1, 2)
	b.export()
	junk := strings.Repeat("x", len(b.lines(1, 2)))
	b.must(os.WriteFile(b.path, []byte(junk), 0o640)) // the same inode
	b.src.add(3)
	b.export()
	b.want(b.path, junk+"\n"+b.lines(3))
}

// The recorded inode is used again, by a file that is being written.
func TestReusedInodeIsNotTouched(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.src.add(1, 2, 3)
	b.export()
	other := filepath.Join(filepath.Dir(b.path), "other.json")
	b.append(other, `xx{`)
	var st syscall.Stat_t
	b.must(syscall.Stat(other, &st))
	b.src.pos.inode, b.src.pos.offset = st.Ino, 2
	b.must(os.Remove(b.path))
	b.src.add(4)
	b.export()
	b.want(other, `xx{`)
	b.want(b.path, b.lines(4))
}

// After a power cut the record is older than the files.
func TestOlderRecordFindsWhatFollowedIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.src.add(1, 2)
	b.export()
	old := b.src.pos
	back := func() {
		b.src.pos = old
		b.restart()
		b.export()
	}
	b.append(b.path, "foreign\n")
	b.src.add(3)
	b.export()
	b.src.add(4)
	back()
	b.want(b.path, b.lines(1, 2)+"foreign\n"+b.lines(3, 4))
	rotated := b.rename()
	b.src.add(5)
	back()
	b.want(b.path, b.lines(5))
	b.src.add(6)
	back()
	b.want(b.path, b.lines(5, 6))
	b.want(rotated, b.lines(1, 2)+"foreign\n"+b.lines(3, 4))
}

func TestOlderRecordInATruncatedLog(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.src.add(11, 12)
	b.export()
	old := b.src.pos
	b.must(os.Truncate(b.path, 0))
	b.src.add(61, 62) // lines of the same lengths
	b.export()
	if b.src.pos.offset != old.offset || b.src.pos.inode != old.inode {
		t.Fatalf("recorded %+v, want the file and offset of %+v", b.src.pos, old)
	}
	b.src.pos = old
	b.src.add(6)
	b.restart()
	b.export()
	b.want(b.path, b.lines(3, 4, 5))
}

// The log is truncated, or removed, between our look at a torn line and its completion.
func TestFileChangesUnderACompletion(t *testing.T) {
	t.Parallel()
	type change func(b *bench, file string)
	truncate := func(b *bench, file string) { b.must(os.Truncate(file, 0)) }
	remove := func(b *bench, file string) { b.must(os.Remove(file)) }
	for name, test := range map[string]struct {
		rotated bool
		change  change
		old     string // "" when it is gone
		present func(b *bench) string
	}{
		"present truncated": {false, truncate, "", func(b *bench) string { return b.lines(2, 3) }},
		"present removed":   {false, remove, "", func(b *bench) string { return b.lines(2, 3) }},
		"rotated removed":   {true, remove, "", func(b *bench) string { return b.lines(2, 3) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.src.add(1)
			b.export()
			b.src.add(2, 3)
			b.crash(cutWrite(30))
			file := b.path
			if test.rotated {
				file = b.rename()
			}
			done := false
			b.log.write = func(f *os.File, p []byte) (int, error) {
				if !done {
					done = true
					test.change(b, file)
				}
				return f.Write(p)
			}
			b.export()
			b.want(b.path, test.present(b))
		})
	}
}

func TestSealedRotatedLogDoesNotHoldUpTheRest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.src.add(1)
	b.export()
	b.src.add(2, 3)
	b.crash(cutWrite(30))
	rotated := b.rename()
	b.log.write = func(f *os.File, p []byte) (int, error) {
		if f.Name() == rotated {
			return 0, &os.PathError{Op: "write", Path: rotated, Err: syscall.EPERM} // chattr +i
		}
		return f.Write(p)
	}
	b.export()
	b.want(b.path, b.lines(2, 3))
	if !strings.Contains(b.logged.String(), "cannot be completed") {
		t.Errorf("not told: %s", b.logged)
	}
}

// A database that lost commits must not give their seqs to other events.
func TestSourceThatLostCommitsIsRenumbered(t *testing.T) {
	t.Parallel()
	for _, rotate := range []bool{false, true} {
		for _, recorded := range []int{2, 3} {
			for _, fresh := range []int{0, 1, 3, 9} { // events committed before we saw it
				t.Run(fmt.Sprintf("rotate=%v recorded=%d fresh=%d", rotate, recorded, fresh), func(t *testing.T) {
					t.Parallel()
					b := newBench(t)
					b.src.add(1, 2)
					b.export()
					old := b.src.pos
					b.src.add(3)
					b.export()
					if recorded == 3 {
						old = b.src.pos
					}
					kept := *b.src
					kept.lines = append([]row(nil), b.src.lines...)
					b.src.add(4, 5, 6)
					b.export()
					first, want := b.path, b.lines(1, 2, 3, 4, 5, 6)
					if rotate {
						first = b.rename()
					}
					*b.src = kept // events 4 to 6 are lost
					b.src.pos = old
					b.restart()
					for i := range fresh {
						b.src.add(100 + i)
					}
					b.export()
					b.src.add(200)
					b.export()
					var after string
					payloads := 0
					for _, r := range b.src.lines {
						if r.payload >= 100 {
							payloads++
							after += b.lines(r.seq)
						}
					}
					if payloads != fresh+1 || b.src.lines[3].seq <= 6 {
						t.Fatalf("events after the loss: %v", b.src.lines)
					}
					if rotate {
						b.want(first, want)
						b.want(b.path, after)
					} else {
						b.want(b.path, want+after)
					}
					if !strings.Contains(b.logged.String(), "lost_after_seq=3 lost_to_seq=6") {
						t.Errorf("not told: %s", b.logged)
					}
				})
			}
		}
	}
}

func TestFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.src.add(1, 2, 3)
	full := errors.New("no space left on device")
	b.log.write = func(f *os.File, p []byte) (int, error) {
		n, _ := f.Write(p[:len(p)/2])
		return n, full
	}
	if err := b.log.Export(context.Background()); !errors.Is(err, full) {
		t.Fatalf("export = %v", err)
	}
	b.log.write = func(*os.File, []byte) (int, error) { return 0, full }
	if err := b.log.Export(context.Background()); !errors.Is(err, full) {
		t.Fatalf("export = %v", err)
	}
	b.log.write = (*os.File).Write
	b.export()
	b.want(b.path, b.lines(1, 2, 3))
}
