package sim

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"syscall"
)

const (
	modeShareable = "shareable"
	modeExclusive = "exclusive"

	minBandwidth  = 10
	bandwidthStep = 10
)

func (m *Model) fullMask() uint64 { return 1<<m.cfg.CBMLen - 1 }

func (m *Model) controls() []*group {
	list := []*group{m.root}
	for _, g := range m.groups {
		list = append(list, g)
	}
	return list
}

// initControls gives a new control group all bandwidth and all cache that no
// exclusive group has.
func (m *Model) initControls(g *group) {
	for d := range m.cfg.L3Domains {
		mask := m.fullMask()
		for _, other := range m.groups {
			if other.mode == modeExclusive {
				mask &^= other.cbm[d]
			}
		}
		g.cbm = append(g.cbm, lowestRun(mask))
		g.mb = append(g.mb, 100)
	}
}

// lowestRun keeps the lowest run of consecutive ones.
func lowestRun(mask uint64) uint64 {
	first := bits.TrailingZeros64(mask)
	if mask == 0 {
		return 0
	}
	return (1<<bits.TrailingZeros64(^(mask>>first)) - 1) << first
}

func (m *Model) formatSchemata(g *group) string {
	digits := (m.cfg.CBMLen + 3) / 4
	return m.perDomain(g,
		func(mb uint64) string { return fmt.Sprintf("%3d", mb) },
		func(mask uint64) string { return fmt.Sprintf("%0*x", digits, mask) })
}

func (m *Model) formatSize(g *group) string {
	return m.perDomain(g,
		func(mb uint64) string { return strconv.FormatUint(mb, 10) },
		func(mask uint64) string { return strconv.Itoa(cacheBytes / m.cfg.CBMLen * bits.OnesCount64(mask)) })
}

func (m *Model) perDomain(g *group, bandwidth, cache func(uint64) string) string {
	if !m.cfg.Allocation {
		return ""
	}
	var mb, l3 []string
	for d := range m.cfg.L3Domains {
		mb = append(mb, fmt.Sprintf("%d=%s", d, bandwidth(g.mb[d])))
		l3 = append(l3, fmt.Sprintf("%d=%s", d, cache(g.cbm[d])))
	}
	return fmt.Sprintf("    MB:%s\n    L3:%s\n", strings.Join(mb, ";"), strings.Join(l3, ";"))
}

// staged collects a write to schemata: nothing is applied unless all is right.
type staged struct {
	m   *Model
	g   *group
	cbm map[int]uint64
	mb  map[int]uint64
}

func (s *staged) refuse(format string, args ...any) error {
	s.m.status.addf(format, args...)
	return syscall.EINVAL
}

func (m *Model) writeSchemata(g *group, text string) error {
	body, ok := strings.CutSuffix(text, "\n")
	if !ok {
		return syscall.EINVAL
	}
	m.status.clear()
	s := &staged{m: m, g: g, cbm: map[int]uint64{}, mb: map[int]uint64{}}
	for _, line := range strings.Split(body, "\n") {
		if err := s.line(line); err != nil {
			return err
		}
	}
	for d, v := range s.cbm {
		g.cbm[d] = v
	}
	for d, v := range s.mb {
		g.mb[d] = v
	}
	return nil
}

func (s *staged) line(line string) error {
	name, values, ok := strings.Cut(line, ":")
	name = strings.TrimSpace(name)
	switch {
	case !ok:
		return s.refuse("Missing ':'")
	case values == "":
		return s.refuse("Missing '%s' value", name)
	case !s.m.cfg.Allocation || name != "L3" && name != "MB":
		return s.refuse("Unknown or unsupported resource name '%s'", name)
	}
	for values != "" {
		var item string
		item, values, _ = strings.Cut(values, ";")
		id, value, ok := strings.Cut(item, "=")
		d, err := strconv.ParseUint(id, 10, 31)
		if !ok || err != nil {
			return s.refuse("Missing '=' or non-numeric domain")
		}
		if int(d) >= s.m.cfg.L3Domains {
			return syscall.EINVAL // the kernel says nothing about it
		}
		parse := s.mask
		if name == "MB" {
			parse = s.bandwidth
		}
		if err := parse(int(d), strings.TrimSpace(value)); err != nil {
			return err
		}
	}
	return nil
}

func (s *staged) mask(d int, text string) error {
	if _, ok := s.cbm[d]; ok {
		return s.refuse("Duplicate domain %d", d)
	}
	low := strings.TrimPrefix(strings.ToLower(text), "0x")
	v, err := strconv.ParseUint(low, 16, 64)
	switch {
	case err != nil:
		return s.refuse("Non-hex character in the mask %s", text)
	case v == 0 || v > s.m.fullMask():
		return s.refuse("Mask out of range")
	case lowestRun(v) != v:
		return s.refuse("The mask %x has non-consecutive 1-bits", v)
	}
	for _, other := range s.m.controls() {
		if other == s.g || other.cbm[d]&v == 0 {
			continue
		}
		if other.mode == modeExclusive {
			return s.refuse("Overlaps with exclusive group")
		}
		if s.g.mode == modeExclusive {
			return s.refuse("Overlaps with other group")
		}
	}
	s.cbm[d] = v
	return nil
}

func (s *staged) bandwidth(d int, text string) error {
	if _, ok := s.mb[d]; ok {
		return s.refuse("Duplicate domain %d", d)
	}
	v, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return s.refuse("Invalid MB value %s", text)
	}
	if v < minBandwidth || v > 100 {
		return s.refuse("MB value %d out of range [%d,100]", v, minBandwidth)
	}
	s.mb[d] = (v + bandwidthStep - 1) / bandwidthStep * bandwidthStep
	return nil
}

func (m *Model) writeMode(g *group, text string) error {
	mode, ok := strings.CutSuffix(text, "\n")
	if !ok {
		return syscall.EINVAL
	}
	m.status.clear()
	switch mode {
	case modeShareable:
	case modeExclusive:
		for _, other := range m.controls() {
			for d := range g.cbm {
				if other != g && other.cbm[d]&g.cbm[d] != 0 {
					m.status.addf("Schemata overlaps")
					return syscall.EINVAL
				}
			}
		}
	case "pseudo-locksetup":
		m.status.addf("Pseudo-locking not supported")
		return syscall.EINVAL
	default:
		m.status.addf("Unknown or unsupported mode")
		return syscall.EINVAL
	}
	g.mode = mode
	return nil
}
