package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// DefaultPath is the configuration file where none is named.
const DefaultPath = "/etc/nri-resctrl/config.toml"

// EnvPath is the environment variable that names the file where no flag does.
const EnvPath = "NRI_RESCTRL_CONFIG"

// maxFile bounds what is read, in bytes: the file with every key and all its
// comments is a few KiB, and a wrong path may lead to something endless.
const maxFile = 1 << 20

// Path says which file Load reads for the value of --config, and whether
// somebody named it: by the flag, then by the environment.
func Path(flag string) (path string, named bool) {
	if flag != "" {
		return flag, true
	}
	if env := os.Getenv(EnvPath); env != "" {
		return env, true
	}
	return DefaultPath, false
}

// Load reads the configuration. flag is the value of --config; where it is
// empty, NRI_RESCTRL_CONFIG names the file, then it is DefaultPath. A missing
// default file means defaults, a missing file that was named is an error. All
// errors are *Error or Errors, whose ExitCode is 78.
func Load(flag string) (*Config, error) {
	path, named := Path(flag)
	data, err := read(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return Default(), nil
	}
	if err != nil {
		return nil, unreadable(path, flag, err)
	}
	return Parse(path, data)
}

func read(path string) ([]byte, error) {
	// A FIFO or a device would block the open or never end.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("longer than %d bytes", maxFile)}
	}
	return data, nil
}

func unreadable(path, flag string, err error) *Error {
	by := "the default"
	switch {
	case flag != "":
		by = "named by --config"
	case os.Getenv(EnvPath) != "":
		by = "named by " + EnvPath
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err // the path is told already
	}
	return &Error{
		File:    path,
		Found:   fmt.Sprintf("cannot read the configuration file (%s)", by),
		Allowed: "a readable TOML file; without --config and " + EnvPath + " it is " + DefaultPath + ", or defaults where that does not exist",
		Err:     err,
	}
}
