package program

import (
	"errors"
	"io/fs"
	"os"

	"github.com/nri-resctrl/nri-resctrl/lib/config"
)

// loadConfig reads the configuration that the value of --config, the
// environment or the default names, and says which file it was; "" where there
// is no default file.
func loadConfig(named string) (*config.Config, string, error) {
	c, err := config.Load(named)
	if err != nil {
		return nil, "", Fail(ExitConfig, err)
	}
	path, _ := config.Path(named)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		path = ""
	}
	return c, path, nil
}
