//go:build race

package pipeline

// underRace has the programs built with the race detector, as the tests are.
const underRace = true
