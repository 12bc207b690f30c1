package fifo

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// long is how long a wait may take that must end: far longer than it does.
const long = time.Minute

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// put writes raw bytes, as a process would that knows nothing of lines.
func put(t *testing.T, w *Writer, text string) {
	t.Helper()
	if _, err := w.file.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, r *Reader, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	got, err := r.ReadLine(ctx)
	if err != nil || string(got) != line {
		t.Fatalf("ReadLine = %.80q (%d bytes), %v, want %.80q (%d bytes)", got, len(got), err, line, len(line))
	}
}

func wantNone(t *testing.T, r *Reader) {
	t.Helper()
	if line, ok, err := r.TryReadLine(); ok || err != nil {
		t.Fatalf("TryReadLine = %.80q, %v, %v, want none", line, ok, err)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	r, w := newPair(t)
	wantNone(t, r)
	put(t, w, "one\ntwo\n\nthr")
	want(t, r, "one")
	if line, ok, err := r.TryReadLine(); string(line) != "two" || !ok || err != nil {
		t.Fatalf("TryReadLine = %q, %v, %v, want two", line, ok, err)
	}
	want(t, r, "")
	wantNone(t, r) // half a line is none
	put(t, w, "ee\nfour")
	want(t, r, "three")
	put(t, w, "\n")
	want(t, r, "four")
	wantNone(t, r)
}

func TestReaderOutlivesWriters(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	r := openR(t, path)
	for _, text := range []string{"first\n", "half of the ", "second\n"} {
		w := openW(t, path)
		put(t, w, text)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	want(t, r, "first")
	want(t, r, "half of the second")
	wantNone(t, r) // and no end of file
}

func TestReadLineEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r, w := newPair(t)
	put(t, w, "half")
	if _, err := r.ReadLine(within(t, 10*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("ReadLine: %v, want DeadlineExceeded", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go cancel()
	if _, err := r.ReadLine(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("ReadLine: %v, want Canceled", err)
	}
	put(t, w, " and half\n") // nothing of the first half is lost, and the deadline is
	want(t, r, "half and half")
	put(t, w, "ready\n")
	if _, err := r.ReadLine(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("ReadLine with a context that has ended: %v, want Canceled", err)
	}
}

func TestCloseWakesTheReader(t *testing.T) {
	t.Parallel()
	r, _ := newPair(t)
	done := make(chan error, 1)
	go func() {
		_, err := r.ReadLine(context.Background())
		done <- err
	}()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("ReadLine: %v, want ErrClosed", err)
	}
	if _, _, err := r.TryReadLine(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("TryReadLine after Close: %v, want ErrClosed", err)
	}
}

// feed writes text beside the reader, which must not wait for it to be all in
// the pipe.
func feed(t *testing.T, w *Writer, texts ...string) (done chan struct{}) {
	t.Helper()
	done = make(chan struct{})
	go func() {
		defer close(done)
		for _, text := range texts {
			if _, err := w.file.WriteString(text); err != nil {
				t.Errorf("write: %v", err)
			}
		}
	}()
	return done
}

func TestTheLongestLine(t *testing.T) {
	t.Parallel()
	r, w := newPair(t)
	line := strings.Repeat("x", lifecycle.MaxLine-1)
	done := feed(t, w, "before\n", line, "\nafter\n")
	want(t, r, "before")
	want(t, r, line)
	want(t, r, "after")
	<-done
}

// TestTheLongestLineWithoutItsNewline: it may still become a good line.
func TestTheLongestLineWithoutItsNewline(t *testing.T) {
	t.Parallel()
	r, w := newPair(t)
	line := strings.Repeat("x", lifecycle.MaxLine-1)
	for done := feed(t, w, line); done != nil; {
		wantNone(t, r)
		select {
		case <-done:
			done = nil
		default:
		}
	}
	wantNone(t, r)
	put(t, w, "\n")
	want(t, r, line)
}

func TestLineTooLong(t *testing.T) {
	t.Parallel()
	for name, length := range map[string]int{"by one byte": lifecycle.MaxLine, "2 MiB": 2 << 20, "16 MiB": 16 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, w := newPair(t)
			texts := []string{"before\n"}
			for n := length; n > 0; n -= 1 << 20 {
				texts = append(texts, strings.Repeat("x", min(n, 1<<20)))
			}
			done := feed(t, w, append(texts, "\nafter\n")...)
			want(t, r, "before")
			if line, err := r.ReadLine(within(t, long)); !errors.Is(err, ErrLineTooLong) {
				t.Fatalf("ReadLine = %d bytes, %v, want ErrLineTooLong", len(line), err)
			}
			want(t, r, "after") // told once
			<-done
			if len(r.buf) > lifecycle.MaxLine {
				t.Errorf("the buffer has grown to %d bytes", len(r.buf))
			}
		})
	}
}

// TestLineTooLongIsToldAtOnce: a line that never ends must not keep quiet.
func TestLineTooLongIsToldAtOnce(t *testing.T) {
	t.Parallel()
	r, w := newPair(t)
	done := feed(t, w, strings.Repeat("x", lifecycle.MaxLine))
	if _, err := r.ReadLine(within(t, long)); !errors.Is(err, ErrLineTooLong) {
		t.Fatalf("ReadLine: %v, want ErrLineTooLong", err)
	}
	<-done
	put(t, w, "still the same line")
	wantNone(t, r)
	put(t, w, "\nnext\n")
	if line, ok, err := r.TryReadLine(); string(line) != "next" || !ok || err != nil {
		t.Errorf("TryReadLine = %q, %v, %v, want next", line, ok, err)
	}
}

// TestManyLines: whole lines of all lengths, in order, while the writer waits
// for the reader most of the time.
func TestManyLines(t *testing.T) {
	t.Parallel()
	r, w := newPair(t)
	text := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), i*i%9000) }
	const lines = 2000
	done := make(chan error, 1)
	go func() {
		for i := range lines {
			if err := w.WriteLine(context.Background(), []byte(text(i)+"\n")); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for i := range lines {
		want(t, r, text(i))
		if i%100 == 0 {
			runtime.Gosched()
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
