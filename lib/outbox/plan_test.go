package outbox

import (
	"context"
	"errors"
	"os"
	"testing"
)

func TestGoOn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		recorded int64
		highest  []int64 // of each file
		after    int64
		at       int
	}{
		"nothing found":        {7, []int64{0, 0}, 7, -1},
		"in the rotated file":  {7, []int64{9, 0}, 9, 0},
		"in the present file":  {7, []int64{9, 12}, 12, 1},
		"an old file put back": {7, []int64{3}, 7, -1},
		"nothing recorded":     {0, []int64{4}, 4, 0},
	} {
		var tails []tail
		for _, h := range test.highest {
			tails = append(tails, tail{highest: h})
		}
		if after, at := goOn(test.recorded, tails); after != test.after || at != test.at {
			t.Errorf("%s: goOn = %d, %d, want %d, %d", name, after, at, test.after, test.at)
		}
	}
}

func TestTorn(t *testing.T) {
	t.Parallel()
	const next = `{"log":"x","seq":12,"a":1}`
	part := func(n int) tail { return tail{torn: []byte(next[:n])} }
	after := func(seq int64, n int) tail { return tail{highest: seq, torn: []byte(next[:n])} }
	for name, test := range map[string]struct {
		tails   []tail
		file    int
		missing string
	}{
		"none":                                {[]tail{part(0), part(0)}, -1, ""},
		"in the rotated file":                 {[]tail{after(11, 20), part(0)}, 0, next[20:] + "\n"},
		"in the present file":                 {[]tail{after(11, 0), part(3)}, 1, next[3:] + "\n"},
		"only its newline is missing":         {[]tail{after(11, len(next))}, 0, "\n"},
		"in both: the later is ours to end":   {[]tail{part(5), part(3)}, 1, next[3:] + "\n"},
		"a file that was closed is not ended": {[]tail{part(5), {highest: 11}}, -1, ""},
		"another line":                        {[]tail{{torn: []byte(`{"log":"x","seq":13`)}}, -1, ""},
		"more than the line":                  {[]tail{{torn: []byte(next + "x")}}, -1, ""},
	} {
		if file, missing := torn(next, test.tails); file != test.file || missing != test.missing {
			t.Errorf("%s: torn = %d, %q, want %d, %q", name, file, missing, test.file, test.missing)
		}
	}
}

func TestLastCommon(t *testing.T) {
	t.Parallel()
	tails := []tail{{own: []found{{4, 4}, {5, 5}}}, {own: []found{{6, 6}, {7, 7}}}}
	for same, want := range map[int64]int64{0: 3, 4: 4, 6: 6, 7: 7} {
		got, err := lastCommon(3, tails, func(f found) (bool, error) { return f.seq <= same, nil })
		if got != want || err != nil {
			t.Errorf("lines up to %d are the same: lastCommon = %d, %v, want %d", same, got, err, want)
		}
	}
	if _, err := lastCommon(3, tails, func(found) (bool, error) { return false, errCrash }); !errors.Is(err, errCrash) {
		t.Errorf("error is lost: %v", err)
	}
}

// What is known is not read again, however long the log is.
func TestOnlyTheUnknownIsRead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.src.add(1, 2, 3)
	b.export()
	b.append(b.path, "foreign\n")
	f, err := os.Open(b.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pos, err := b.log.position(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	files, err := b.log.candidates(f, pos)
	if err != nil || len(files) != 1 || files[0].from != pos.offset || pos.offset != int64(len(b.lines(1, 2, 3))) {
		t.Fatalf("candidates = %+v, %v, want the log from %d", files, err, pos.offset)
	}
}
