package program

import (
	"flag"
	"fmt"
	"io"
)

// printHelp writes what --help shows. Options are written as the documentation
// has them, a letter with one dash; the flag package takes one or two.
func printHelp(w io.Writer, cmd Command, fs *flag.FlagSet) {
	usage := cmd.Usage
	if usage == "" {
		usage = "[options]"
	}
	fmt.Fprintf(w, "Usage: %s %s\n\n%s\n\nOptions:\n", cmd.Name, usage, cmd.Summary)
	fs.VisitAll(func(f *flag.Flag) {
		arg, text := flag.UnquoteUsage(f)
		if arg != "" {
			arg = " " + arg
		}
		dashes := "--"
		if len(f.Name) == 1 {
			dashes = "-"
		}
		fmt.Fprintf(w, "  %s%s%s\n        %s\n", dashes, f.Name, arg, text)
	})
	if cmd.Details != "" {
		fmt.Fprintf(w, "\n%s\n", cmd.Details)
	}
}
