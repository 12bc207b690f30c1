package lifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzDecode: no line crashes Decode, and a record that it takes means the
// same after it was written again.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		line(`"event":"SYNCHRONIZE","phase":"begin","hello":"h"`),
		line(`"event":"SYNCHRONIZE","phase":"end","pods":1,"containers":2`),
		line(`"event":"START_CONTAINER","pod":` + podJSON + `,"container":` + ctrJSON),
		`{"v":1,"event":"HEARTBEAT","queue_dropped":3}`,
		`{"hello":"abc"}`, `{"epoch":"e","seq":5}`, `{"v":1,`, `null`, `{"x":[{"y":1,"Y":2}]}`, "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		rec, err := Decode(in)
		if err == nil {
			out, err := Encode(rec)
			if err != nil {
				return // escapes may have made it longer than a line
			}
			again, err := Decode(out)
			if err != nil {
				t.Fatalf("decode %q, written from %q: %v", out, in, err)
			}
			if diff := cmp.Diff(rec, again); diff != "" {
				t.Fatalf("written again it differs:\n%s", diff)
			}
		}
		if hello, ack, err := DecodeReply(in); err == nil && (hello.Hello == "") == (ack.Epoch == "") {
			t.Fatalf("DecodeReply(%q) = %+v, %+v: want exactly one", in, hello, ack)
		}
	})
}
