package resctrl

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func strays(tids ...int) []stray {
	var list []stray
	for _, tid := range tids {
		list = append(list, stray{tid: tid})
	}
	return list
}

// TestFitting: a write of 4096 bytes is taken, one of 4097 is not (6.12).
func TestFitting(t *testing.T) {
	t.Parallel()
	full := slices.Repeat([]int{1234567}, 512) // 512 * 8 - 1 = 4095 bytes
	for _, c := range []struct {
		name string
		tids []int
		want int
	}{
		{"one", []int{7}, 1},
		{"4095 bytes", full, 512},
		{"4096 bytes", append([]int{12345678}, full[1:]...), 512},
		{"4097 bytes", append([]int{123456789}, full[1:]...), 511},
		{"4097 bytes by one more", append(slices.Clone(full), 1), 512},
	} {
		list := strays(c.tids...)
		got := fitting(list)
		if got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
		if n := len(join(list[:got])); n > 4096 {
			t.Errorf("%s: %d bytes", c.name, n)
		}
	}
}

func TestFailedTask(t *testing.T) {
	t.Parallel()
	list := strays(15, 153, 1530)
	for words, want := range map[string]int{
		"No task 153\nError while processing task 153":                                 1,
		"Can't move task to different control group\nError while processing task 1530": 2,
		"No task 15\nError while processing task 15":                                   0,
		"Error while processing task 99":                                               -1, // of another write
		"Task list parsing error pid 15,153":                                           -1,
		"No task 15":                                                                   -1,
		"":                                                                             -1,
	} {
		if got := failedTask(list, words); got != want {
			t.Errorf("%q: %d, want %d", words, got, want)
		}
	}
}

func TestParseGroups(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]group{
		"res:/\nmon:\n": {}, "res:/\nmon:m1\n": {mon: "m1"}, "res:g1\nmon:\n": {ctrl: "g1"},
		"res:g1\nmon:m 1\n": {ctrl: "g1", mon: "m 1"}, "res:/g1\nmon:m1": {ctrl: "g1", mon: "m1"},
		"res:a:b\nmon:c:d\n": {ctrl: "a:b", mon: "c:d"},
	} {
		if got, err := parseGroups([]byte(text)); got != want || err != nil {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	// Not mounted; a task that matches no group; a cut text.
	for _, text := range []string{"res:\nmon:\n", "", "res:/\n", "mon:m1\n", "garbage"} {
		if got, err := parseGroups([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestNewWords(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"", "Out of RMIDs", "Out of RMIDs"},
		{"Out of RMIDs", "Out of RMIDs\nOut of RMIDs", "Out of RMIDs"},
		{"No task 7", "No task 7\nOut of CLOSIDs", "Out of CLOSIDs"},
		{"No task 7", "No task 7", ""},                // nothing of it belongs to the mkdir
		{"No task 7", "Out of RMIDs", "Out of RMIDs"}, // cleared between
		{"", "", ""},
	} {
		if got := newWords(c[0], c[1]); got != c[2] {
			t.Errorf("%q, %q: %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

// TestPlainDirectory: a root that is no resctrl, though it looks like one, is
// never written to.
func TestPlainDirectory(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{"mon_groups/pod_old", "info", "pod_empty"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f := New(Options{Root: root, Prefix: "pod_", ProcRoot: "/proc"})
	path := filepath.Join(root, "mon_groups", "pod_a")
	old := filepath.Join(root, "mon_groups", "pod_old")
	if _, err := f.Create(context.Background(), path); ReasonOf(err) != "not_mounted" {
		t.Errorf("create: %v", err)
	}
	if got, err := f.Move(context.Background(), old, path); ReasonOf(err) != "not_mounted" || got != old {
		t.Errorf("move: %q, %v", got, err)
	}
	if err := f.Remove(context.Background(), old); err != nil {
		t.Errorf("remove: %v", err)
	}
	if _, err := f.Cleanup(context.Background(), func(string) bool { return false }); ReasonOf(err) != "not_mounted" {
		t.Errorf("cleanup: %v", err)
	}
	for path, want := range map[string]bool{path: false, old: true, filepath.Join(root, "pod_empty"): true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: there %v, want %v", path, err == nil, want)
		}
	}
}
