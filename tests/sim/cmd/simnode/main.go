// Simnode mounts a simulated node in a directory and takes commands, one JSON
// object a line, on its standard input. It ends at the end of its input.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/nri-resctrl/nri-resctrl/tests/sim/simnode"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := simnode.Run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "simnode:", err)
		os.Exit(1)
	}
}
