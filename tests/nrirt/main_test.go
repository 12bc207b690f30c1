package nrirt

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	RunWorkload()
	SilenceNRI()
	goleak.VerifyTestMain(m)
}
