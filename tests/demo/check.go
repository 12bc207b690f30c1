package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/nri-resctrl/nri-resctrl/tests/world"
)

// afterFailure is how long a step may take once one has failed: the reader has
// seen enough.
const afterFailure = time.Second

// check waits until ask has no complaint; one that stays is shown and counted.
func (s *story) check(what string, ask func() error) {
	patience := s.patience
	if s.failures > 0 {
		patience = min(patience, afterFailure)
	}
	err := world.UntilWithin(patience, what, func() error {
		if s.ctx.Err() != nil {
			return nil // pause tells
		}
		return ask()
	})
	if err != nil {
		s.fail(what, err)
	}
}

func (s *story) fail(what string, err error) {
	if s.ctx.Err() != nil {
		return
	}
	s.failures++
	s.show.wrong(fmt.Sprintf("%s: not so: %v", what, err))
}

// expect waits until exactly these events, in short, were told of the pod.
func (s *story) expect(pod, want string) {
	s.check("the events of "+pod, func() error {
		got, err := s.w.History(uid(pod))
		if err == nil && got != want {
			err = fmt.Errorf("want %q, got %q", want, got)
		}
		return err
	})
}

// lastOf checks the last event of the pod.
func (s *story) lastOf(pod, want string) error {
	got, err := s.w.History(uid(pod))
	if err == nil && got != want && !strings.HasSuffix(got, ", "+want) {
		err = fmt.Errorf("want %q at the end, got %q", want, got)
	}
	return err
}

// events shows the events that came since it was last asked.
func (s *story) events() {
	list, err := s.newEvents()
	if err != nil {
		s.fail("read the event log", err)
		return
	}
	s.show.events(list)
}

// retry runs the retry job, which must end with the code.
func (s *story) retry(want int) {
	r, err := s.w.Retry()
	if err == nil && r.Code != want {
		err = fmt.Errorf("exit code %d, want %d: %s", r.Code, want, r.Err)
	}
	s.show.done(fmt.Sprintf("resctrl-retry: exit code %d%s", r.Code, map[int]string{75: " (out of capacity)"}[r.Code]))
	if err != nil {
		s.fail("the retry job", err)
	}
}

// membership shows how much of the container is in its pod's group.
func (s *story) membership(container, pod string) {
	group := s.w.GroupPath(uid(pod))
	tasks, missing, err := s.w.Membership(s.boxes[container], group)
	if err != nil {
		s.show.saw(fmt.Sprintf("%s: its pod has no group", container))
		return
	}
	s.show.saw(fmt.Sprintf("%s: %d of %d tasks in mon_groups/pod_%s", container, tasks-len(missing), tasks, uid(pod)))
}

// complete says what of the container is not in its pod's group.
func (s *story) complete(container, pod string) error {
	_, missing, err := s.w.Membership(s.boxes[container], s.w.GroupPath(uid(pod)))
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("tasks %v of %s are not in its group", missing, container)
	}
	return err
}
