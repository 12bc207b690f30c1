package sim

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"syscall"
)

// maxCPUs is how far the masks of the simulator go.
const maxCPUs = 64

func formatMask(mask uint64) string { return fmt.Sprintf("%x\n", mask) }

func formatList(mask uint64) string {
	var ranges []string
	for mask != 0 {
		first := bits.TrailingZeros64(mask)
		last := first + bits.TrailingZeros64(^(mask >> first)) - 1
		if first == last {
			ranges = append(ranges, strconv.Itoa(first))
		} else {
			ranges = append(ranges, fmt.Sprintf("%d-%d", first, last))
		}
		mask &^= (1<<(last-first+1) - 1) << first
	}
	return strings.Join(ranges, ",") + "\n"
}

// parseMask is the hexadecimal form of cpus; EOVERFLOW beyond the last CPU.
func parseMask(text string, cpus int) (uint64, error) {
	v, err := strconv.ParseUint(strings.ReplaceAll(strings.TrimSpace(text), ",", ""), 16, 64)
	if err != nil {
		return 0, syscall.EINVAL
	}
	if bits.Len64(v) > cpus {
		return 0, syscall.EOVERFLOW
	}
	return v, nil
}

// parseList is the list form of cpus_list; ERANGE beyond the last CPU.
func parseList(text string, cpus int) (uint64, error) {
	var mask uint64
	for item := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		if item == "" {
			continue
		}
		low, high, ok := strings.Cut(item, "-")
		if !ok {
			high = low
		}
		first, err1 := strconv.Atoi(low)
		last, err2 := strconv.Atoi(high)
		switch {
		case err1 != nil || err2 != nil || first < 0 || last < first:
			return 0, syscall.EINVAL
		case last >= cpus:
			return 0, syscall.ERANGE
		}
		for cpu := first; cpu <= last; cpu++ {
			mask |= 1 << cpu
		}
	}
	return mask, nil
}

// writeCPUs adds to last_cmd_status without clearing it, as the kernel does.
func (m *Model) writeCPUs(g *group, text string, parse func(string, int) (uint64, error)) error {
	mask, err := parse(text, min(m.cfg.CPUs, maxCPUs))
	if err != nil {
		m.status.addf("Bad CPU list/mask")
		return err
	}
	if g.monitoring() {
		if mask&^g.parent.cpus != 0 {
			m.status.addf("Can only add CPUs to mongroup that belong to parent")
			return syscall.EINVAL
		}
		for _, sibling := range g.parent.children {
			sibling.cpus &^= mask
		}
		g.cpus = mask
		return nil
	}
	dropped := g.cpus &^ mask
	if dropped != 0 && g == m.root {
		m.status.addf("Can't drop CPUs from default group")
		return syscall.EINVAL
	}
	for _, other := range m.controls() {
		if other != g {
			other.cpus &^= mask
		}
	}
	g.cpus = mask
	m.root.cpus |= dropped
	for _, control := range m.controls() {
		for _, child := range control.children {
			child.cpus &= control.cpus
		}
	}
	return nil
}
