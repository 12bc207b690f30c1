package program

import (
	"bytes"
	"context"
	"log/slog"
	"sync"

	"github.com/coreos/go-systemd/v22/journal"
)

// journalHandler formats a record as the text handler does and sends it to the
// journal with its priority; the journal has the time itself.
type journalHandler struct {
	out  *journalLine
	text slog.Handler
	vars map[string]string
}

// journalLine is what the text handlers of one logger write into.
type journalLine struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write collects the text of the record being handled.
func (l *journalLine) Write(p []byte) (int, error) { return l.buf.Write(p) }

func newJournalHandler(opts *slog.HandlerOptions, name string) *journalHandler {
	line := &journalLine{}
	o := *opts
	o.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
			return slog.Attr{}
		}
		return a
	}
	return &journalHandler{out: line, text: slog.NewTextHandler(line, &o), vars: map[string]string{"SYSLOG_IDENTIFIER": name}}
}

func (h *journalHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.text.Enabled(ctx, l)
}

func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	h.out.buf.Reset()
	if err := h.text.Handle(ctx, r); err != nil {
		return err
	}
	return journal.Send(string(bytes.TrimRight(h.out.buf.Bytes(), "\n")), priority(r.Level), h.vars)
}

func (h *journalHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return &journalHandler{out: h.out, text: h.text.WithAttrs(a), vars: h.vars}
}

func (h *journalHandler) WithGroup(name string) slog.Handler {
	return &journalHandler{out: h.out, text: h.text.WithGroup(name), vars: h.vars}
}

// priority is syslog's word for a level. What a program has to say is a notice:
// resctrl-retry.service keeps priorities below that from the journal
// (LogLevelMax=), for they are systemd's own words, at every pass.
func priority(l slog.Level) journal.Priority {
	switch {
	case l >= slog.LevelError:
		return journal.PriErr
	case l >= slog.LevelWarn:
		return journal.PriWarning
	case l >= slog.LevelInfo:
		return journal.PriNotice
	}
	return journal.PriDebug
}
