package outbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

const testLog = "0123456789abcdef"

// memory is a Source without a database.
type memory struct {
	lines []row
	last  int64
	pos   position
	// beforeRecord stands before SetPosition; an error keeps it from happening.
	beforeRecord, afterRecord func() error
}

type row struct {
	seq     int64
	payload int
}

func (r row) line() string {
	return fmt.Sprintf(`{"log":%q,"seq":%d,"time":"2026-03-01T12:00:00.000000000Z","payload":%d,"pad":%q}`,
		testLog, r.seq, r.payload, strings.Repeat("x", r.payload%50))
}

// add commits events; payloads never repeat, seqs must not.
func (m *memory) add(payloads ...int) {
	for _, p := range payloads {
		m.last++
		m.lines = append(m.lines, row{m.last, p})
	}
}

func (m *memory) Unexported(_ context.Context, after int64, limit int) (out []string, _ error) {
	for _, r := range m.lines {
		if r.seq > after && len(out) < limit {
			out = append(out, r.line())
		}
	}
	return out, nil
}

func (m *memory) Line(_ context.Context, seq int64) (string, bool, error) {
	for _, r := range m.lines {
		if r.seq == seq {
			return r.line(), true, nil
		}
	}
	return "", false, nil
}

func (m *memory) Renumber(_ context.Context, after, above int64) (n int, _ error) {
	m.last = max(m.last, above)
	for i := range m.lines {
		if m.lines[i].seq > after {
			m.last++
			m.lines[i].seq = m.last
			n++
		}
	}
	return n, nil
}

func (m *memory) Position(context.Context) (int64, uint64, uint64, int64, error) {
	return m.pos.seq, m.pos.dev, m.pos.inode, m.pos.offset, nil
}

func (m *memory) SetPosition(_ context.Context, seq int64, dev, inode uint64, offset int64) error {
	if m.beforeRecord != nil {
		if err := m.beforeRecord(); err != nil {
			return err
		}
	}
	m.pos = position{seq, dev, inode, offset}
	if m.afterRecord != nil {
		return m.afterRecord()
	}
	return nil
}

var errCrash = errors.New("killed here")

// cutWrite writes only the first n bytes of what it is given, then dies.
func cutWrite(n int) func(*os.File, []byte) (int, error) {
	return func(f *os.File, b []byte) (int, error) {
		n, _ := f.Write(b[:min(n, len(b))])
		return n, errCrash
	}
}
