package program

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/nri-resctrl/nri-resctrl/lib/config"
)

// DefaultConfigPath is read where no other file is named; it may be missing.
const DefaultConfigPath = "/etc/nri-resctrl/config.toml"

// ConfigEnv names the file where --config does not.
const ConfigEnv = "NRI_RESCTRL_CONFIG"

// loadConfig reads the file that --config or the environment names, which must
// be there, else the default file, else it gives the defaults and path "".
func loadConfig(named string, getenv func(string) string) (*config.Config, string, error) {
	path := named
	if path == "" {
		path = getenv(ConfigEnv)
	}
	if path == "" {
		path = DefaultConfigPath
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return config.Default(), "", nil
		}
	}
	c, err := config.Load(path)
	if err == nil {
		return c, path, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w (it was named by --config or %s: make it, or name another)", err, ConfigEnv)
	}
	return nil, path, Fail(ExitConfig, err)
}
