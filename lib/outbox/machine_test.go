package outbox

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// machine exports on real files, is killed everywhere, and has its log
// rotated in every way at every moment; a consumer judges what can be read.
type machine struct {
	dir, path string
	src       *memory
	log       *Log
	logged    bytes.Buffer
	payload   int

	// segments are the names of the rotated files in the order of their
	// rotation, with the content of those that are gone.
	segments  []segment
	rotations int
	// mayRepeat are the seqs that were in a file that was gone, or truncated,
	// before their export was recorded.
	mayRepeat map[int64]bool
}

func newMachine(t *rapid.T) *machine {
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{dir: dir, path: filepath.Join(dir, "events.jsonl"), src: &memory{}, mayRepeat: map[int64]bool{}}
	m.restart()
	return m
}

// restart is a new process over the same files.
func (m *machine) restart() {
	m.src.beforeRecord, m.src.afterRecord = nil, nil
	m.log = New(m.path, m.src, Options{LogID: testLog, Logger: slog.New(slog.NewTextHandler(&m.logged, nil))})
}

// rotations that may happen at a moment.
var rotations = []string{"none", "rename", "rename+create", "rename+compress", "copytruncate", "delete", "rename twice"}

func (m *machine) rotate(how string) error {
	m.rotations++
	name := fmt.Sprintf("%s-%04d", m.path, m.rotations)
	content, err := os.ReadFile(m.path)
	if how == "none" || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if how == "copytruncate" {
		m.excuse(content)
		m.segments = append(m.segments, segment{name: name, cut: true})
		if err := os.WriteFile(name, content, 0o640); err != nil {
			return err
		}
		return os.Truncate(m.path, 0)
	}
	if err := os.Rename(m.path, name); err != nil {
		return err
	}
	m.segments = append(m.segments, segment{name: name})
	switch how {
	case "rename+create":
		return os.WriteFile(m.path, nil, 0o640)
	case "rename twice":
		if err := os.WriteFile(m.path, nil, 0o640); err != nil {
			return err
		}
		return m.rotate("rename")
	case "rename+compress":
		return m.pack(len(m.segments) - 1)
	case "delete":
		return m.pack(len(m.segments) - 1)
	}
	return nil
}

// pack takes a rotated file away; the consumer keeps what it held at that time.
func (m *machine) pack(i int) error {
	s := &m.segments[i]
	content, err := os.ReadFile(s.name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s.content, s.cut = string(content), true
	m.excuse(content)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(content); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := os.WriteFile(s.name+".gz", packed.Bytes(), 0o640); err != nil {
		return err
	}
	return os.Remove(s.name)
}

// excuse allows the repeat of what is in content and not recorded.
func (m *machine) excuse(content []byte) {
	for line := range strings.Lines(string(content)) {
		if seq, ok := m.log.seqOf([]byte(strings.TrimSuffix(line, "\n"))); ok && seq > m.src.pos.seq {
			m.mayRepeat[seq] = true
		}
	}
}

// moments of one export at which it dies, or the log is rotated.
var moments = []string{"no death", "before the write", "in the write", "after the write", "at the fsync", "before the record", "after the record"}

// export runs one export that dies at a moment, with a rotation just before
// that moment. It says whether it died.
func (m *machine) export(t *rapid.T, moment, rotation string, cut int) bool {
	rotated := false
	once := func() {
		if !rotated {
			rotated = true
			if err := m.rotate(rotation); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.log.sync = func(*os.File) error { return nil }
	m.log.o.Fsync = true
	m.log.write = func(f *os.File, b []byte) (int, error) {
		switch moment {
		case "before the write":
			once()
			return 0, errCrash
		case "in the write":
			n, err := cutWrite(cut)(f, b)
			once()
			return n, err
		case "after the write":
			n, err := cutWrite(len(b))(f, b)
			once()
			return n, err
		case "no death":
			if cut%2 == 0 {
				once()
			}
		}
		return f.Write(b)
	}
	die := func(at string) func() error {
		return func() error {
			if moment != at {
				return nil
			}
			once()
			return errCrash
		}
	}
	m.log.sync = func(*os.File) error {
		if moment == "no death" {
			once()
		}
		return die("at the fsync")()
	}
	m.src.beforeRecord, m.src.afterRecord = die("before the record"), die("after the record")
	err := m.log.Export(context.Background())
	if err != nil && !errors.Is(err, errCrash) {
		t.Fatalf("export: %v", err)
	}
	m.log.write, m.log.sync = (*os.File).Write, func(*os.File) error { return nil }
	m.src.beforeRecord, m.src.afterRecord = nil, nil
	return err != nil
}

// all gives what a consumer can read by now.
func (m *machine) all(t *rapid.T) []segment {
	var out []segment
	for _, s := range m.segments {
		if s.content == "" {
			content, err := os.ReadFile(s.name)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			s.content = string(content)
		}
		out = append(out, s)
	}
	content, err := os.ReadFile(m.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return append(out, segment{name: m.path, content: string(content)})
}

// settle exports all without a fault and judges the whole log.
func (m *machine) settle(t *rapid.T) {
	if m.export(t, "no death", "none", 1) {
		t.Fatal("died without a fault")
	}
	events, err := readSegments(m.all(t))
	if err == nil {
		err = judge(events, m.mayRepeat, m.src.last)
	}
	if err != nil {
		t.Fatalf("%v\nlogged:\n%s", err, m.logged.String())
	}
	if m.src.pos.seq != m.src.last {
		t.Fatalf("recorded seq %d of %d", m.src.pos.seq, m.src.last)
	}
}

func (m *machine) foreign(t *rapid.T, text string) {
	f, err := os.OpenFile(m.path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content, err := os.ReadFile(m.path)
	if err != nil {
		t.Fatal(err)
	}
	if len(content) > 0 && content[len(content)-1] != '\n' {
		return // it would break a torn line of ours, which is not ours to mend
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestExportOverCrashesAndRotations(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		defer os.RemoveAll(m.dir)
		t.Repeat(map[string]func(*rapid.T){
			"events": func(t *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(t, "n") {
					m.payload++
					m.src.add(m.payload)
				}
			},
			"export": func(t *rapid.T) {
				moment := rapid.SampledFrom(moments).Draw(t, "moment")
				rotation := rapid.SampledFrom(rotations).Draw(t, "rotation")
				cut := rapid.IntRange(0, 400).Draw(t, "cut")
				if m.export(t, moment, rotation, cut) && rapid.Bool().Draw(t, "restart") {
					m.restart() // else: the error passed, like a full disk
				}
			},
			"rotate": func(t *rapid.T) {
				if err := m.rotate(rapid.SampledFrom(rotations).Draw(t, "rotation")); err != nil {
					t.Fatal(err)
				}
			},
			"pack": func(t *rapid.T) {
				if len(m.segments) > 0 {
					if err := m.pack(rapid.IntRange(0, len(m.segments)-1).Draw(t, "which")); err != nil {
						t.Fatal(err)
					}
				}
			},
			"foreign line": func(t *rapid.T) {
				m.foreign(t, rapid.SampledFrom([]string{"foreign\n", "foreign", "foreign {\n\n"}).Draw(t, "text"))
			},
			"restart": func(t *rapid.T) { m.restart() },
			"settle":  func(t *rapid.T) { m.settle(t) },
		})
		m.settle(t)
	})
}
