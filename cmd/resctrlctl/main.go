// Command resctrlctl shows people what the other programs do.
package main

import (
	"os"
	"time"

	"github.com/nri-resctrl/nri-resctrl/lib/ctl"
	"github.com/nri-resctrl/nri-resctrl/lib/program"
)

func main() {
	os.Args = append(os.Args[:1:1], ctl.Arrange(os.Args[1:])...)
	program.Main(ctl.Command(time.Now))
}
