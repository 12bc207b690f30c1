package lifecycle

import (
	"strings"
	"testing"
)

// BenchmarkDecode: an ordinary record, and the worst that a line can be.
func BenchmarkDecode(b *testing.B) {
	object := "{" + manyNames(maxNames)[1:] + "},"
	for name, in := range map[string]string{
		"start":       line(`"event":"START_CONTAINER","pod":` + podJSON + `,"container":` + ctrJSON),
		"many names":  line(`"event":"X","x":[` + strings.Repeat(object, 1_000_000/len(object)) + `[]]`),
		"many arrays": line(`"event":"X","x":[` + strings.Repeat("[],", 300_000) + `[]]`),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode([]byte(in)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
