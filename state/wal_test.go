package state

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDamagedWALKeepsTheLog: a WAL of which nothing can be read loses what was
// committed, not whose events they were: they are not taken for another log's.
func TestDamagedWALKeepsTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := Open(path, Options{Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	id := s.LogID()
	if err := s.SetMeta(t.Context(), map[string]string{"k": "v"}); err != nil {
		t.Fatal(err)
	}
	db, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, db, 0o600); err != nil { // as it was beside its WAL
		t.Fatal(err)
	}
	if s, err = Open(path, Options{Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.LogID() != id {
		t.Errorf("log %s, was %s", s.LogID(), id)
	}
}
