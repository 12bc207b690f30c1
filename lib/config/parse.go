package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// Parse reads the text of a configuration file. name stands for the file in
// errors. What the text does not set has its default. The error is Errors
// with all that is wrong, or one *Error where the text is no TOML.
func Parse(name string, data []byte) (*Config, error) {
	doc, err := decode(name, data)
	if err != nil {
		return nil, err
	}
	c := Default()
	fields := c.fields()
	known := make(map[string]field, len(fields))
	for _, f := range fields {
		known[f.name()] = f
	}
	for _, entry := range doc.entries {
		f, ok := known[entry.name()]
		if !ok {
			doc.unknown(entry, fields)
			continue
		}
		if allowed := f.set(entry.value); allowed != "" {
			doc.fault(entry.line, f.name(), "found "+show(entry.value), allowed)
		}
	}
	doc.distinct(c, fields)
	if len(doc.faults) > 0 {
		slices.SortStableFunc(doc.faults, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
		return nil, doc.faults
	}
	return c, nil
}

// document is the entries of a file with their lines, and its faults so far.
type document struct {
	file    string
	data    []byte
	meta    toml.MetaData
	entries []entry
	faults  Errors
}

// entry is one "key = value" in a table of the file.
type entry struct {
	table, key string
	value      any
	line       int
}

func (e entry) name() string { return e.table + "." + e.key }

func (d *document) fault(line int, key, found, allowed string) {
	d.faults = append(d.faults, &Error{File: d.file, Line: line, Key: key, Found: found, Allowed: allowed})
}

// decode finds the entries of all tables. Values stay as TOML gave them:
// decoding into the Config itself would end at the first wrong type, and
// would take keys in any case.
func decode(name string, data []byte) (*document, error) {
	var top map[string]toml.Primitive
	meta, err := toml.NewDecoder(bytes.NewReader(data)).Decode(&top)
	if err != nil {
		return nil, syntax(name, data, err)
	}
	d := &document{file: name, data: data, meta: meta}
	for _, table := range sorted(top) {
		value, line := d.look(top[table])
		if _, ok := value.(map[string]any); !ok {
			d.outside(table, value, line)
			continue
		}
		var keys map[string]toml.Primitive
		if err := meta.PrimitiveDecode(top[table], &keys); err != nil {
			return nil, syntax(name, data, err)
		}
		if len(keys) == 0 && !slices.Contains(Tables(), table) {
			d.fault(line, quoteKey(table), "unknown table", tables())
		}
		for _, key := range sorted(keys) {
			value, at := d.look(keys[key])
			if at == 0 {
				at = line // of the table: TOML's empty key has no position of its own
			}
			d.entries = append(d.entries, entry{table, key, value, at})
		}
	}
	return d, nil
}

func syntax(name string, data []byte, err error) *Error {
	var pe toml.ParseError
	if !errors.As(err, &pe) {
		return &Error{File: name, Found: "not TOML", Err: err}
	}
	return &Error{File: name, Line: lineOf(pe.Position, data), Found: "not TOML: " + oneLine(pe.Message)}
}

// outside is for what stands in the file where a table should.
func (d *document) outside(key string, value any, line int) {
	if slices.Contains(Tables(), key) {
		d.fault(line, key, "found "+show(value), "a table, ["+key+"]")
		return
	}
	d.fault(line, quoteKey(key), "unknown key outside of all tables", tables())
}

func (d *document) unknown(e entry, fields []field) {
	var there []string
	for _, f := range fields {
		if f.table == e.table {
			there = append(there, f.key)
		}
	}
	key := quoteKey(e.table) + "." + quoteKey(e.key)
	if there == nil {
		d.fault(e.line, key, "unknown table "+quoteKey(e.table), tables())
		return
	}
	d.fault(e.line, key, "unknown key", strings.Join(there, ", "))
}

// Tables is the names of the tables that a file may have.
func Tables() []string {
	var names []string
	for _, f := range new(Config).fields() {
		if !slices.Contains(names, f.table) {
			names = append(names, f.table)
		}
	}
	return names
}

func tables() string { return "the tables " + strings.Join(Tables(), ", ") }

// distinct finds two of our files that are one: the second writer would
// destroy what the first one wrote.
func (d *document) distinct(c *Config, fields []field) {
	wrong := map[string]bool{}
	for _, f := range d.faults {
		wrong[f.Key] = true
	}
	lines := make(map[string]int, len(d.entries))
	for _, e := range d.entries {
		lines[e.name()] = e.line
	}
	type owner struct {
		field
		what string // "" for the file itself
	}
	seen := map[string]owner{}
	for _, f := range fields {
		if f.file == nil || wrong[f.name()] {
			continue
		}
		for path, what := range c.beside(f.name(), *f.file) {
			other, twice := seen[path]
			if !twice {
				seen[path] = owner{f, what}
				continue
			}
			blame, against := f, other.name()+other.what
			if lines[other.name()] > lines[f.name()] {
				blame, against = other.field, f.name()+what
			}
			d.fault(lines[blame.name()], blame.name(), fmt.Sprintf("found %q", *blame.file),
				"a path where nothing else of ours is; "+path+" is that of "+against)
			break
		}
	}
}

// beside is every path that a key brings with it, and what it is: the file
// itself (""), SQLite's own files beside the database, the locks beside the pipe.
func (c *Config) beside(key, path string) map[string]string {
	all := map[string]string{path: ""}
	switch key {
	case "pipe.path":
		for _, name := range []string{"writer.turn", "writer.lock", "watcher.lock", "applier.lock"} {
			all[filepath.Join(filepath.Dir(path), name)] = " (its lock " + name + ")"
		}
	case "state.path":
		for _, suffix := range []string{"-wal", "-shm", "-journal", ".lock"} {
			all[path+suffix] = " (its " + suffix + " file)"
		}
	}
	return all
}

// look is a value with the line of its key. The decoder tells positions only
// in its errors, so the probe takes the value and fails. A table that only
// dotted keys or headers below it imply has the line of the first of them.
func (d *document) look(p toml.Primitive) (value any, line int) {
	var probe probe
	err := d.meta.PrimitiveDecode(p, &probe)
	var pe toml.ParseError
	if errors.As(err, &pe) && pe.Position.Line > 0 {
		return probe.value, lineOf(pe.Position, d.data)
	}
	var below map[string]toml.Primitive
	if _, ok := probe.value.(map[string]any); !ok || d.meta.PrimitiveDecode(p, &below) != nil {
		return probe.value, 0
	}
	for _, q := range below {
		if _, l := d.look(q); line == 0 || l > 0 && l < line {
			line = l
		}
	}
	return probe.value, line
}

// lineOf is the line where a position starts. Its own Line is the last one of
// a string of several lines, and one too few at a string that a CRLF breaks
// (toml v1.6.0).
func lineOf(p toml.Position, data []byte) int {
	if p.Start <= 0 || p.Start > len(data) {
		return max(p.Line, 1)
	}
	return 1 + bytes.Count(data[:p.Start], []byte("\n"))
}

type probe struct{ value any }

var errProbed = errors.New("probed")

// UnmarshalTOML keeps the value and fails, for the position in the error.
func (p *probe) UnmarshalTOML(value any) error {
	p.value = value
	return errProbed
}

func sorted(m map[string]toml.Primitive) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func quoteKey(key string) string { return toml.Key{key}.String() }
