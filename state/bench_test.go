package state

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// quantiles reports the median and the 99th percentile of b's iterations.
func quantiles(b *testing.B, step func(i int)) {
	b.Helper()
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		step(i)
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkFloor is what no durable commit can beat: 4 KiB written and
// fdatasync'ed on the same file system, at the end of a growing file (a young
// WAL) and over what is there (a WAL that was checkpointed).
func BenchmarkFloor(b *testing.B) {
	page := make([]byte, 4096)
	for name, offset := range map[string]func(i int) int64{
		"append":    func(i int) int64 { return int64(i) * 4096 },
		"overwrite": func(i int) int64 { return int64(i%64) * 4096 },
	} {
		b.Run(name, func(b *testing.B) {
			f, err := os.Create(filepath.Join(b.TempDir(), "floor"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			quantiles(b, func(i int) {
				if _, err := f.WriteAt(page, offset(i)); err != nil {
					b.Fatal(err)
				}
				if err := unix.Fdatasync(int(f.Fd())); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// BenchmarkCommit is one pod of two containers and its event, in a database of
// 110 pods.
func BenchmarkCommit(b *testing.B) {
	s := openTemp(b)
	for i := range 110 {
		mustCommit(b, s, batchOf(podOf(fmt.Sprint("pod-", i), 2)))
	}
	quantiles(b, func(i int) {
		p := podOf(fmt.Sprint("pod-", i%110), 2)
		batch := batchOf(p)
		batch.Events = []SourcedEvent{eventOf(p)}
		mustCommit(b, s, batch)
	})
}

// BenchmarkIntend is the row that a group's mkdir waits for.
func BenchmarkIntend(b *testing.B) {
	s := openTemp(b)
	quantiles(b, func(i int) {
		if err := s.Intend(context.Background(), podOf(fmt.Sprint("pod-", i%110), 0).Pod); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkPod(b *testing.B) {
	s := openTemp(b)
	mustCommit(b, s, batchOf(podOf("u1", 5)))
	quantiles(b, func(int) { mustPod(b, s, "u1") })
}

// BenchmarkOpen opens a database of a busy node's week: 300,000 events.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "state.db")
	s := openAt(b, path, Options{})
	for range 150 {
		var batch Batch
		for i := range 2000 {
			batch.Events = append(batch.Events, eventOf(podOf(fmt.Sprint("pod-", i), 0)))
		}
		mustCommit(b, s, batch)
	}
	if err := s.SetPosition(context.Background(), 300000, 1, 1, 1); err != nil {
		b.Fatal(err)
	}
	s.Close()
	for name, skip := range map[string]bool{"checked": false, "beside an applier": true} {
		b.Run(name, func(b *testing.B) {
			quantiles(b, func(int) {
				s, err := Open(path, Options{SkipCheck: skip})
				if err != nil {
					b.Fatal(err)
				}
				s.Close()
			})
		})
	}
}
