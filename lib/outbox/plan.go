package outbox

import "strings"

// tail is what a file holds from a point on.
type tail struct {
	// highest is the seq of the highest whole line of ours, 0 for none, and
	// end the offset at which that line ends.
	highest, end int64
	// own are the whole lines of ours above the recorded seq, as found.
	own []found
	// torn is what follows the last newline; it may be a part of a line.
	torn []byte
	size int64 // of the whole file, when it was read
}

// found is one whole line of ours.
type found struct {
	seq int64
	sum uint64 // of its bytes
}

// goOn says after which seq the export goes on: the highest whole line of ours
// in any of the files, else the recorded one. at is the file that has it, -1
// for none.
func goOn(recorded int64, tails []tail) (after int64, at int) {
	after, at = recorded, -1
	for i, t := range tails {
		if t.highest > after {
			after, at = t.highest, i
		}
	}
	return after, at
}

// torn says in which file next, the first line to be exported, was begun, and
// which bytes are missing there; -1 for none. The files are in the order of
// their writing, the present one last. Only what was written last can be its
// beginning: a file followed by one with whole lines of ours is closed.
func torn(next string, tails []tail) (file int, missing string) {
	for i := len(tails) - 1; i >= 0; i-- {
		part := string(tails[i].torn)
		if part != "" && strings.HasPrefix(next, part) {
			return i, next[len(part):] + "\n"
		}
		if tails[i].highest > 0 {
			break
		}
	}
	return -1, ""
}

// lastCommon gives the seq of the highest found line that the source has just
// so, else the recorded seq. Above it, files and source tell different stories.
func lastCommon(recorded int64, tails []tail, same func(found) (bool, error)) (int64, error) {
	common := recorded
	for i := len(tails) - 1; i >= 0; i-- {
		for j := len(tails[i].own) - 1; j >= 0; j-- {
			if f := tails[i].own[j]; f.seq > common {
				ok, err := same(f)
				if err != nil {
					return 0, err
				}
				if ok {
					common = f.seq
				}
			}
		}
	}
	return common, nil
}
