package simnode

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/nri-resctrl/nri-resctrl/tests/sim"
)

// Ready is the first line of the process.
type Ready struct {
	Ready   bool   `json:"ready"`
	Resctrl string `json:"resctrl"`
	Cgroup  string `json:"cgroup"`
	Proc    string `json:"proc"`
	PID     int    `json:"pid"`
}

// Run is the process: it mounts, prints Ready, answers each line of in (a
// Command) with a line of out (a Reply), and unmounts at the end of in or when
// ctx is done.
func Run(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	cfg := sim.DefaultConfig()
	flags := flag.NewFlagSet("simnode", flag.ContinueOnError)
	dir := flags.String("dir", "", "where to mount resctrl, cgroup and proc")
	flags.IntVar(&cfg.NumRMIDs, "num-rmids", cfg.NumRMIDs, "RMIDs of the CPU, the root group's included")
	flags.IntVar(&cfg.NumCLOSIDs, "num-closids", cfg.NumCLOSIDs, "CLOSIDs of the CPU, the root group's included")
	flags.DurationVar(&cfg.Limbo, "limbo", cfg.Limbo, "how long a removed RMID is not given out again")
	flags.BoolVar(&cfg.Kernel61, "kernel-6.1", false, "behave as Linux 6.1")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" {
		return fmt.Errorf("simnode: -dir is missing")
	}
	n, err := Start(*dir, cfg)
	if err != nil {
		return err
	}
	defer func() {
		if uerr := n.Unmount(); err == nil {
			err = uerr
		}
	}()
	answers := json.NewEncoder(out)
	ready := Ready{Ready: true, Resctrl: n.Resctrl(), Cgroup: n.Cgroup(), Proc: n.Proc(), PID: os.Getpid()}
	if err := answers.Encode(ready); err != nil {
		return err
	}
	return n.obey(ctx, in, answers)
}

func (n *Node) obey(ctx context.Context, in io.Reader, answers *json.Encoder) error {
	lines, failed := make(chan []byte), make(chan error, 1)
	go func() {
		scanner := bufio.NewScanner(in)
		for scanner.Scan() {
			select {
			case lines <- append([]byte(nil), scanner.Bytes()...):
			case <-ctx.Done():
				return
			}
		}
		failed <- scanner.Err()
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case line := <-lines:
			var c Command
			reply := Reply{}
			if err := json.Unmarshal(line, &c); err != nil {
				reply.Error = err.Error()
			} else {
				reply = n.Do(c)
			}
			if err := answers.Encode(reply); err != nil {
				return err
			}
		}
	}
}
