package resctrl

// RealOS lets the tests do what others on the node do.
func RealOS() OS { return realOS{} }

// MaxPasses is the bound of an assignment.
const MaxPasses = maxPasses
