package stream

import (
	"flag"
	"os"
	"testing"
)

// TestMain has rapid try more than its usual 100 courses: the rare ones, where
// two faults meet, are what this package is about. -rapid.checks overrides it.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "1500"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
