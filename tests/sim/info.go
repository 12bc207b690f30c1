package sim

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

const (
	cacheBytes     = 16777212 // what size shows for the whole L3 of the emulated CPU
	occupancyScale = 65536    // bytes of one unit of the occupancy counter
)

func (m *Model) resources() []string {
	var list []string
	if m.cfg.Allocation {
		list = append(list, "L3", "MB")
	}
	if m.cfg.Monitoring {
		list = append(list, "L3_MON")
	}
	return list
}

func (m *Model) resourceFiles(res string) []string {
	switch res {
	case "L3":
		list := []string{"bit_usage", "cbm_mask", "min_cbm_bits", "num_closids", "shareable_bits"}
		if !m.cfg.Kernel61 {
			list = append(list, "sparse_masks")
		}
		return list
	case "L3_MON":
		return []string{"max_threshold_occupancy", "mon_features", "num_rmids"}
	}
	return []string{"bandwidth_gran", "delay_linear", "min_bandwidth", "num_closids", "thread_throttle_mode"}
}

func (m *Model) info(res, file string) string {
	switch file {
	case "bit_usage":
		return m.bitUsage()
	case "cbm_mask":
		return fmt.Sprintf("%x\n", m.fullMask())
	case "min_cbm_bits", "delay_linear":
		return "1\n"
	case "num_closids":
		return fmt.Sprintln(m.cfg.NumCLOSIDs)
	case "max_threshold_occupancy":
		return fmt.Sprintln(m.threshold)
	case "mon_features":
		return "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n"
	case "num_rmids":
		return fmt.Sprintln(m.cfg.NumRMIDs)
	case "bandwidth_gran", "min_bandwidth":
		return "10\n"
	case "thread_throttle_mode":
		return "max\n"
	}
	return "0\n" // shareable_bits, sparse_masks
}

// bitUsage marks each bit of each domain: E exclusive, S shared by groups, 0
// used by none.
func (m *Model) bitUsage() string {
	var domains []string
	for d := range m.cfg.L3Domains {
		var shared, exclusive uint64
		for _, g := range m.controls() {
			if g.mode == modeExclusive {
				exclusive |= g.cbm[d]
			} else {
				shared |= g.cbm[d]
			}
		}
		var b strings.Builder
		for bit := m.cfg.CBMLen - 1; bit >= 0; bit-- {
			switch {
			case exclusive>>bit&1 == 1:
				b.WriteByte('E')
			case shared>>bit&1 == 1:
				b.WriteByte('S')
			default:
				b.WriteByte('0')
			}
		}
		domains = append(domains, fmt.Sprintf("%d=%s", d, b.String()))
	}
	return strings.Join(domains, ";") + "\n"
}

// setThreshold rounds down to what the counter can count.
func (m *Model) setThreshold(text string) error {
	n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(text, "+"), "\n"), 0, 32)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return syscall.ERANGE
	case err != nil, n > cacheBytes:
		return syscall.EINVAL
	}
	m.threshold = n / occupancyScale * occupancyScale
	return nil
}

// reading is a file of mon_data: the sum over a control group and its
// monitoring groups, or the word that the kernel gives instead of a number.
func (m *Model) reading(g *group, event string) string {
	m.sync()
	now := m.clock.Now()
	groups := []*group{g}
	for _, child := range g.children {
		groups = append(groups, child)
	}
	var sum uint64
	for _, member := range groups {
		r := member.rmid
		switch {
		case r.id != 0 && r.id == m.cfg.ErrorRMID:
			return "Error\n"
		case r.id != 0 && r.id == m.cfg.UnavailableRMID:
			return "Unavailable\n"
		case event == "llc_occupancy":
			sum += m.rmids.occupancy(r, now)
		case event == "mbm_total_bytes":
			sum += r.total
		default:
			sum += r.local
		}
	}
	return fmt.Sprintln(sum)
}
