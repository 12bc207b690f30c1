package nrirt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// workloadName is the argument zero of a container's process.
const workloadName = "nrirt-workload"

// controlFD is the workload's end of the socket to the runtime. One byte
// from it opens the gate; the workload says there when it is set up; its end
// is the runtime's end, and then the workload ends too, so that nothing
// outlives a runtime that was killed.
const controlFD = 3

// RunWorkload becomes a container's process if this process was started as
// one, and then does not return. Call it first thing in main or TestMain.
//
// The workloads, as the words of ContainerOptions.Workload:
//
//	sleep [DURATION]     does nothing, for ever if no time is given
//	threads N            has at least N threads
//	grow N DURATION      gains a thread every DURATION until it has gained N
//	forks N              has N child processes
//	exit CODE            ends at once
//	first FILE [SOURCE]  first of all writes its pid and what it reads in
//	                     SOURCE into FILE, then does nothing
func RunWorkload() {
	if len(os.Args) < 2 || os.Args[0] != workloadName {
		return
	}
	if os.Args[1] == "gate" {
		waitAtGate()
	}
	code, err := work(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		code = 1
	}
	os.Exit(code)
}

// waitAtGate waits for the byte that opens the gate and executes the workload
// in place: the pid stays, the other threads end, as with runc's init.
func waitAtGate() {
	buf := make([]byte, 1)
	n, err := readControl(buf)
	if n != 1 || err != nil {
		os.Exit(0) // the runtime is gone, or the container was never started
	}
	argv := append([]string{workloadName}, os.Args[2:]...)
	err = unix.Exec("/proc/self/exe", argv, os.Environ())
	fmt.Fprintln(os.Stderr, "workload: exec:", err)
	os.Exit(1)
}

func readControl(buf []byte) (int, error) {
	for {
		n, err := unix.Read(controlFD, buf)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// work runs one workload and gives its exit code.
func work(name string, args []string) (int, error) {
	if name == "first" {
		if err := recordFirst(args); err != nil {
			return 1, err
		}
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM)
	go func() {
		readControl(make([]byte, 1))
		stop <- unix.SIGTERM
	}()
	switch name {
	case "sleep":
		return 0, sleep(args, stop)
	case "first":
		return 0, sleep(nil, stop)
	case "child": // of forks
		<-stop
		return 0, nil
	case "exit":
		return number(args, 0)
	case "threads", "grow":
		return 0, threads(args, stop)
	case "forks":
		return 0, forks(args, stop)
	}
	return 1, fmt.Errorf("unknown workload %q", name)
}

// ready tells the runtime that the workload is set up.
func ready() { unix.Write(controlFD, []byte("r")) }

func sleep(args []string, stop <-chan os.Signal) error {
	var over <-chan time.Time
	if len(args) > 0 {
		d, err := time.ParseDuration(args[0])
		if err != nil {
			return err
		}
		over = time.After(d)
	}
	ready()
	select {
	case <-over:
	case <-stop:
	}
	return nil
}

// recordFirst writes this process's pid and the source's text; the file
// appears whole.
func recordFirst(args []string) error {
	if len(args) < 1 {
		return errors.New("first: FILE is missing")
	}
	text := []byte(strconv.Itoa(os.Getpid()) + "\n")
	if len(args) > 1 {
		src, err := os.Open(args[1])
		if err != nil {
			text = append(text, err.Error()...)
		} else {
			more, err := io.ReadAll(src)
			if err != nil {
				more = []byte(err.Error())
			}
			text = append(text, more...)
			src.Close()
		}
	}
	tmp := filepath.Join(filepath.Dir(args[0]), "."+filepath.Base(args[0])+".new")
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, args[0])
}

// threads starts threads that never end: each goroutine keeps its own.
func threads(args []string, stop <-chan os.Signal) error {
	n, err := number(args, 1)
	if err != nil {
		return err
	}
	var every time.Duration
	if len(args) > 1 {
		if every, err = time.ParseDuration(args[1]); err != nil {
			return err
		}
		ready() // a pool that grows is there from its first thread on
	}
	up := make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			up <- struct{}{}
			for {
				unix.Pause()
			}
		}()
		<-up
		if every > 0 {
			time.Sleep(every)
		}
	}
	if every == 0 {
		ready()
	}
	<-stop
	return nil
}

// forks starts children and, at the end, ends and reaps them.
func forks(args []string, stop <-chan os.Signal) error {
	n, err := number(args, 1)
	if err != nil {
		return err
	}
	control := os.NewFile(controlFD, "control")
	var children []*exec.Cmd
	for range n {
		c := exec.Command("/proc/self/exe", "child")
		c.Args[0] = workloadName
		c.ExtraFiles = []*os.File{control}
		if err := c.Start(); err != nil {
			return err
		}
		children = append(children, c)
	}
	ready()
	<-stop
	for _, c := range children {
		c.Process.Kill()
		c.Wait()
	}
	return nil
}

func number(args []string, otherwise int) (int, error) {
	if len(args) == 0 {
		return otherwise, nil
	}
	return strconv.Atoi(args[0])
}
