package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadFlagGoesBeforeEnvironment(t *testing.T) {
	byFlag := write(t, "[resctrl]\ngroup_prefix = \"flag_\"\n")
	byEnv := write(t, "[resctrl]\ngroup_prefix = \"env_\"\n")
	t.Setenv(EnvPath, byEnv)
	for flag, want := range map[string]string{byFlag: "flag_", "": "env_"} {
		c, err := Load(flag)
		if err != nil {
			t.Fatalf("Load(%q): %v", flag, err)
		}
		if c.Resctrl.GroupPrefix != want {
			t.Errorf("Load(%q): group_prefix is %q, want %q", flag, c.Resctrl.GroupPrefix, want)
		}
	}
}

func TestPathWithoutNames(t *testing.T) {
	t.Setenv(EnvPath, "")
	if path, named := Path(""); path != DefaultPath || named {
		t.Errorf(`Path("") = %q, %t; want %q, false`, path, named, DefaultPath)
	}
}

func TestLoadNamedButUnreadable(t *testing.T) {
	dir := t.TempDir()
	big := write(t, strings.Repeat("#\n", maxFile))
	for _, tc := range []struct {
		name, flag, env string
		want            []string
		is              error
	}{
		{"flag absent", dir + "/no.toml", "", []string{dir + "/no.toml: ", "--config", "no such file"}, fs.ErrNotExist},
		{"environment absent", "", dir + "/no.toml", []string{dir + "/no.toml: ", EnvPath, "no such file"}, fs.ErrNotExist},
		{"a directory", dir, "", []string{dir + ": ", "not a regular file"}, nil},
		{"endless", big, "", []string{big + ": ", "longer than 1048576 bytes"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv(EnvPath, tc.env)
			_, err := Load(tc.flag)
			var ce *Error
			if !errors.As(err, &ce) || ce.ExitCode() != 78 {
				t.Fatalf("got %v, want an *Error with exit code 78", err)
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%v is not %v", err, tc.is)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
		})
	}
}

func TestLoadDoesNotBlockOnAFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	mkfifo(t, path)
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v, want a refusal of a FIFO", err)
	}
}
