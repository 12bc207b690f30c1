//go:build !race

package pipeline

const underRace = false
