package main

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// bench creates, starts, stops and removes containers one after another, and
// prints how long each of it took.
func (c *client) bench(args []string) error {
	fs := flag.NewFlagSet("bench", flag.ExitOnError)
	pod := fs.String("pod", "", "")
	image := fs.String("image", "localhost/workload:1", "")
	n := fs.Int("n", 20, "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var create, start, remove []time.Duration
	for i := range *n {
		began := time.Now()
		id, err := c.create(&spec{pod: *pod, name: "bench" + strconv.Itoa(i), image: *image, args: fs.Args()})
		if err != nil {
			return err
		}
		created := time.Now()
		if _, err := c.rt.StartContainer(c.ctx, &cri.StartContainerRequest{ContainerId: id}); err != nil {
			return err
		}
		started := time.Now()
		if _, err := c.rt.StopContainer(c.ctx, &cri.StopContainerRequest{ContainerId: id}); err != nil {
			return err
		}
		if err := c.removeContainer([]string{id}); err != nil {
			return err
		}
		create, start, remove = append(create, created.Sub(began)), append(start, started.Sub(created)), append(remove, time.Since(started))
	}
	show("create", create)
	show("start", start)
	show("stop+rm", remove)
	return nil
}

func show(name string, d []time.Duration) {
	if len(d) == 0 {
		return
	}
	slices.Sort(d)
	fmt.Printf("%-8s n=%d min=%.1f p50=%.1f p95=%.1f max=%.1f ms\n", name, len(d), ms(d[0]), ms(d[len(d)/2]), ms(d[len(d)*95/100]), ms(d[len(d)-1]))
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
