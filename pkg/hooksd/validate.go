// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// ValidateOptions change what ValidateFile looks at. The zero value looks at the
// file alone.
type ValidateOptions struct {
	// CheckHost looks for the hook's program on the host.
	CheckHost bool
	// TrustAnyone looks at no owner and no mode.
	TrustAnyone bool
}

// ValidateFile reads one file, a host path, as a Registry does, and returns what is
// wrong with it, each problem at its line where there is one. The error is errdefs.
// ErrNotFound where there is no such file, or that of its directory.
func ValidateFile(host hostfs.Root, file string, opts ValidateOptions) ([]*Problem, error) {
	r := &Registry{host: host, opts: Options{TrustAnyone: opts.TrustAnyone}, euid: uint32(unix.Geteuid())}
	dir, err := host.Open(path.Dir(file), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	e := r.load(int(dir.Fd()), path.Dir(file), path.Base(file))
	if e == nil {
		return nil, fmt.Errorf("read %q: %w", file, unix.ENOENT)
	}
	problems := e.problems
	if e.hook != nil && opts.CheckHost {
		if p := r.program(e); p != nil {
			problems = append(problems, p)
		}
	}
	if data, err := host.ReadFile(file, MaxSize); err == nil {
		places := placesOf(data)
		for _, p := range problems {
			if p.Line == 0 && p.Field != "" {
				p.Line, p.Column = places.of(p.Field)
			}
		}
	}
	sortProblems(problems)
	return problems, nil
}

// places are where in a file the fields stand, by their names as problems have them,
// in lower case: that is how encoding/json compares keys.
type places struct {
	data []byte
	at   map[string]int64 // offset of the value's first byte, or of an unknown key
}

// maxPlaces bounds the fields of a file.
const maxPlaces = 1 << 14

func placesOf(data []byte) *places {
	p := &places{data: data, at: make(map[string]int64)}
	// What cannot be read to its end has its problem's place from the reader.
	_ = p.value(json.NewDecoder(bytes.NewReader(data)), "", 0)
	return p
}

// next is the offset of the first byte of the next token.
func (p *places) next(dec *json.Decoder) int64 {
	at := dec.InputOffset()
	for at < int64(len(p.data)) && strings.IndexByte(" \t\r\n:,", p.data[at]) >= 0 {
		at++
	}
	return at
}

func (p *places) note(field string, at int64) {
	if field = strings.ToLower(field); len(p.at) < maxPlaces {
		p.at[field] = at
	}
}

// value reads a value, and notes what is in it. No field of a hook is deeper than
// three.
func (p *places) value(dec *json.Decoder, field string, depth int) error {
	if field != "" {
		p.note(field, p.next(dec))
	}
	token, err := dec.Token()
	if err != nil {
		return err
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	for i := 0; dec.More(); i++ {
		name := index(field, i)
		if delim == '{' {
			at := p.next(dec)
			key, err := dec.Token()
			if err != nil {
				return err
			}
			text, _ := key.(string)
			before := field
			if before != "" {
				before += "."
			}
			name = before + text
			p.note(before+quote(text), at)
			p.note(field+"["+quote(text)+"]", at)
		}
		if depth > 3 {
			name = ""
		}
		if err := p.value(dec, name, depth+1); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}

// of is the line and column of a field, or of the nearest one around it that the
// file has; 0 for none.
func (p *places) of(field string) (line, column int) {
	for field = strings.ToLower(field); field != ""; field = field[:max(0, strings.LastIndexAny(field, ".["))] {
		if at, ok := p.at[field]; ok {
			return position(p.data, at+1)
		}
	}
	return 0, 0
}
