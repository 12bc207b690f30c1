package program

import (
	"flag"
	"fmt"
	"io"
)

// printHelp writes what --help shows. The options are written with two
// dashes, as the documentation has them; the flag package takes both.
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
		fmt.Fprintf(w, "  --%s%s\n        %s\n", f.Name, arg, text)
	})
	if cmd.Details != "" {
		fmt.Fprintf(w, "\n%s\n", cmd.Details)
	}
}
