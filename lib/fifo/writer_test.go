package fifo

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// fill fills the pipe until not one byte goes in, and returns the lines.
func fill(t *testing.T, w *Writer) []string {
	t.Helper()
	var lines []string
	for _, line := range []string{strings.Repeat("f", pipeBuf-1), "", "f"} {
		for {
			ok, err := w.TryWrite([]byte(line + "\n"))
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		t.Fatal("nothing went into an empty pipe")
	}
	return lines
}

func wantAll(t *testing.T, r *Reader, lines []string) {
	t.Helper()
	for _, line := range lines {
		want(t, r, line)
	}
}

func TestTryWriteDropsWhenFull(t *testing.T) {
	t.Parallel()
	r, w := newPair(t)
	wantAll(t, r, fill(t, w))
	wantNone(t, r) // what did not go in left nothing behind
	if ok, err := w.TryWrite([]byte("again\n")); !ok || err != nil {
		t.Fatalf("TryWrite = %v, %v, want room again", ok, err)
	}
	want(t, r, "again")
}

func TestTryWriteIsOnePiece(t *testing.T) {
	t.Parallel()
	r, w := newPair(t)
	line := strings.Repeat("x", pipeBuf-1)
	if ok, err := w.TryWrite([]byte(line + "\n")); !ok || err != nil {
		t.Fatalf("TryWrite of PIPE_BUF bytes = %v, %v", ok, err)
	}
	want(t, r, line)
	if _, err := w.TryWrite([]byte(line + "x\n")); !errors.Is(err, ErrLineTooLong) {
		t.Errorf("TryWrite of one byte more: %v, want ErrLineTooLong", err)
	}
	wantNone(t, r)
}

func TestWriteLineEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r, w := newPair(t)
	lines := fill(t, w)
	if err := w.WriteLine(within(t, 10*time.Millisecond), []byte("late\n")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("WriteLine into a full pipe: %v, want DeadlineExceeded", err)
	}
	wantAll(t, r, lines)
	wantNone(t, r)
	if err := w.WriteLine(within(t, long), []byte("next\n")); err != nil {
		t.Fatal(err)
	}
	want(t, r, "next") // of the late line nothing went out, so it is forgotten
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.WriteLine(ctx, []byte("x\n")); !errors.Is(err, context.Canceled) {
		t.Errorf("WriteLine with a context that has ended: %v, want Canceled", err)
	}
}

// bigLine is one that no pipe holds whole: half of it goes out, then it waits.
func bigLine(letter string) string { return strings.Repeat(letter, 700_000) }

func startBigLine(t *testing.T, w *Writer, line string) {
	t.Helper()
	for w.out == 0 { // a slow machine may spend the time before the first byte
		if err := w.WriteLine(within(t, 10*time.Millisecond), []byte(line+"\n")); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("WriteLine: %v, want DeadlineExceeded", err)
		}
	}
}

func TestWriteLineGoesOn(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]string{"the same line": bigLine("a"), "another line": bigLine("b"), "a short line": "short"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, w := newPair(t)
			startBigLine(t, w, bigLine("a"))
			if ok, err := w.TryWrite([]byte("ack\n")); ok || err != nil {
				t.Fatalf("TryWrite in the middle of a line = %v, %v, want it dropped", ok, err)
			}
			wantNone(t, r) // makes room
			if ok, err := w.TryWrite([]byte("ack\n")); ok || err != nil {
				t.Fatalf("TryWrite in the middle of a line, with room = %v, %v, want it dropped", ok, err)
			}
			done := make(chan error, 1)
			go func() { done <- w.WriteLine(context.Background(), []byte(again+"\n")) }()
			want(t, r, bigLine("a"))
			if again != bigLine("a") {
				want(t, r, again)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			wantNone(t, r)
		})
	}
}

func TestWriteLineSeesTheReaderGo(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	r := openR(t, path)
	w := openW(t, path)
	startBigLine(t, w, bigLine("a"))
	done := make(chan error, 1)
	go func() { done <- w.WriteLine(context.Background(), []byte(bigLine("a")+"\n")) }()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, ErrNoReader) {
		t.Fatalf("WriteLine: %v, want ErrNoReader", err)
	}
	if ok, err := w.TryWrite([]byte("x\n")); ok || !errors.Is(err, ErrNoReader) {
		t.Errorf("TryWrite = %v, %v, want ErrNoReader", ok, err)
	}
	// A new reader finds what nobody read, and then whole lines.
	r = openR(t, path)
	go func() {
		done <- errors.Join(w.WriteLine(context.Background(), []byte("\n")), w.WriteLine(context.Background(), []byte("whole\n")))
	}()
	if line, err := r.ReadLine(within(t, long)); err != nil || strings.Trim(string(line), "a") != "" {
		t.Fatalf("ReadLine = %.40q, %v, want what was left of the line", line, err)
	}
	want(t, r, "whole")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestCloseWakesTheWriter(t *testing.T) {
	t.Parallel()
	_, w := newPair(t)
	startBigLine(t, w, bigLine("a"))
	done := make(chan error, 2)
	go func() { done <- w.WriteLine(context.Background(), []byte(bigLine("a")+"\n")) }()
	go func() { done <- w.WaitGone(context.Background()) }()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-done; !errors.Is(err, os.ErrClosed) {
			t.Errorf("who waited: %v, want ErrClosed", err)
		}
	}
	if !w.Gone() {
		t.Error("a closed pipe has a reader")
	}
}

// TestIdleWriterSeesTheReaderGo: without a write, on an empty pipe and on a
// full one, and while the reader still reads now and then.
func TestIdleWriterSeesTheReaderGo(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*testing.T, *Reader, *Writer){
		"empty": func(*testing.T, *Reader, *Writer) {},
		"full":  func(t *testing.T, _ *Reader, w *Writer) { fill(t, w) },
		"full and read again": func(t *testing.T, r *Reader, w *Writer) {
			wantAll(t, r, fill(t, w))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, w := newPair(t)
			if w.Gone() {
				t.Fatal("Gone with a reader there")
			}
			if err := w.WaitGone(within(t, 5*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("WaitGone with a reader there: %v, want DeadlineExceeded", err)
			}
			done := make(chan error, 1)
			go func() { done <- w.WaitGone(context.Background()) }()
			before(t, r, w)
			select {
			case err := <-done:
				t.Fatalf("WaitGone with a reader there: %v", err)
			default:
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; !errors.Is(err, ErrNoReader) {
				t.Errorf("WaitGone: %v, want ErrNoReader", err)
			}
			if !w.Gone() {
				t.Error("not Gone after the reader closed")
			}
			if err := w.WaitGone(within(t, long)); !errors.Is(err, ErrNoReader) {
				t.Errorf("WaitGone afterwards: %v, want ErrNoReader", err)
			}
		})
	}
}

// TestWaitGoneDoesNotStandInTheWay: lines go out while another goroutine waits
// for the reader's going.
func TestWaitGoneDoesNotStandInTheWay(t *testing.T) {
	t.Parallel()
	r, w := newPair(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.WaitGone(ctx) }()
	sent := make(chan error, 1)
	go func() { sent <- w.WriteLine(context.Background(), []byte(bigLine("a")+"\n")) }()
	want(t, r, bigLine("a"))
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("WaitGone: %v, want Canceled", err)
	}
	if err := w.WriteLine(within(t, long), []byte("more\n")); err != nil {
		t.Fatal(err)
	}
	want(t, r, "more")
}

// TestWaitGoneOnAFullPipe: there the runtime's poller may come to take the
// pipe for one that cannot be polled, depending on who is faster; hence rounds.
func TestWaitGoneOnAFullPipe(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	for range 100 {
		r := openR(t, path)
		w := openW(t, path)
		fill(t, w)
		done := make(chan error, 1)
		go func() { done <- w.WaitGone(context.Background()) }()
		runtime.Gosched()
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{<-done, w.WaitGone(context.Background())} {
			if !errors.Is(err, ErrNoReader) {
				t.Fatalf("WaitGone: %v, want ErrNoReader", err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
