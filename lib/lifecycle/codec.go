package lifecycle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// MaxHelloID is the longest id of a hello, in bytes. The watcher keeps the
// newest one and puts it into every begin, so it must not be able to grow.
const MaxHelloID = 1024

// ErrTooLong says that a line is longer than MaxLine.
var ErrTooLong = fmt.Errorf("line is longer than %d bytes", MaxLine)

// ErrNoObject says that a line holds something else than one JSON object.
var ErrNoObject = errors.New("line is not one JSON object")

// Decode reads one line of the pipe, with or without its newline. It is strict
// on what a record must have (see Validate) and ignores fields it does not
// know; an event that it does not know is no error (see Event.Known). A pod
// without a UID gets its sandbox id for it. Errors name what is wrong, never
// the line's content.
func Decode(line []byte) (*Record, error) {
	var rec Record
	if err := decodeObject(line, &rec); err != nil {
		return nil, err
	}
	rec.Normalize()
	if err := rec.Validate(); err != nil {
		return nil, err
	}
	return &rec, nil
}

// Encode makes one line of v, its newline included. It fails with ErrTooLong
// where that would be longer than MaxLine.
func Encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // paths and names are for people, not for browsers
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	if buf.Len() > MaxLine {
		return nil, fmt.Errorf("encode %T: %w", v, ErrTooLong)
	}
	return buf.Bytes(), nil
}

// reply is the union of what a line of the acknowledgement FIFO may hold.
type reply struct {
	Hello *string `json:"hello"`
	Epoch *string `json:"epoch"`
	Seq   *uint64 `json:"seq"`
}

// DecodeReply reads one line of the acknowledgement FIFO, which is either a
// hello (then Hello.Hello is not empty) or an acknowledgement (then Ack.Epoch
// is not empty). A line that is both or neither is an error.
func DecodeReply(line []byte) (Hello, Ack, error) {
	var r reply
	if err := decodeObject(line, &r); err != nil {
		return Hello{}, Ack{}, err
	}
	isAck := r.Epoch != nil || r.Seq != nil
	switch {
	case r.Hello != nil && isAck:
		return Hello{}, Ack{}, errors.New("reply is both a hello and an acknowledgement")
	case r.Hello != nil:
		if *r.Hello == "" || len(*r.Hello) > MaxHelloID {
			return Hello{}, Ack{}, fmt.Errorf("hello has an id of %d bytes, allowed are 1 to %d", len(*r.Hello), MaxHelloID)
		}
		return Hello{Hello: *r.Hello}, Ack{}, nil
	case r.Epoch == nil || *r.Epoch == "":
		return Hello{}, Ack{}, errors.New("reply is neither a hello nor an acknowledgement")
	case r.Seq == nil || *r.Seq == 0:
		return Hello{}, Ack{}, errors.New("acknowledgement has no seq")
	}
	return Hello{}, Ack{Epoch: *r.Epoch, Seq: *r.Seq}, nil
}

// decodeObject reads exactly one JSON object into v. encoding/json alone would
// take null for an empty object, replace broken UTF-8 (so that two ids could
// become one) and merge an object that is there twice.
func decodeObject(line []byte, v any) error {
	if len(line) > MaxLine {
		return ErrTooLong
	}
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] != '{' {
		return ErrNoObject
	}
	if !utf8.Valid(line) {
		return errors.New("line is not UTF-8")
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("line is no valid record: %w", plain(err))
	}
	return checkKeys(line)
}

// plain takes the line's own text out of an error of encoding/json: it goes to
// the log, and what a stranger wrote into the pipe has no business there.
func plain(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("field %q cannot hold a %s", clip(e.Field), clip(e.Value))
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("bad JSON at byte %d", e.Offset)
	}
	return errors.New("bad value") // e.g. a time that is none; its error quotes the text
}

// clip bounds a text that goes into an error.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
