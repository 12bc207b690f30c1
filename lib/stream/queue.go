package stream

import (
	"slices"

	"github.com/nri-resctrl/nri-resctrl/lib/lifecycle"
)

// queue holds changes in their order. Its memory is given back when it is empty.
type queue struct {
	items []lifecycle.Record
	head  int // items before it are gone
}

func (q *queue) len() int { return len(q.items) - q.head }

func (q *queue) push(rec lifecycle.Record) { q.items = append(q.items, rec) }

func (q *queue) pop() (lifecycle.Record, bool) {
	if q.len() == 0 {
		return lifecycle.Record{}, false
	}
	rec := q.items[q.head]
	q.items[q.head] = lifecycle.Record{} // let its strings go
	q.head++
	switch {
	case q.head == len(q.items):
		q.clear()
	case q.head >= len(q.items)/2 && q.head > 64: // amortized: each item moves once
		q.items = slices.Delete(q.items, 0, q.head)
		q.head = 0
	}
	return rec, true
}

func (q *queue) clear() { *q = queue{} }
