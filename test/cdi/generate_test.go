// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// generator generates the texts of spec files as JSON or YAML. Most are valid, and some have one or
// two faults.
type generator struct{ *rand.Rand }

type object = map[string]any

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

func (g generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g generator) text() []byte {
	spec := g.spec()
	if g.chance(40) {
		g.spoil(spec)
	}
	var b []byte
	var err error
	switch g.IntN(4) {
	case 0:
		b, err = yaml.Marshal(spec)
	case 1:
		b, err = json.MarshalIndent(spec, "", "  ")
	default:
		b, err = json.Marshal(spec)
	}
	if err != nil {
		panic(err)
	}
	if g.chance(5) {
		b = g.scramble(b)
	}
	return b
}

// scramble damages the text.
func (g generator) scramble(b []byte) []byte {
	i := g.IntN(len(b))
	switch g.IntN(5) {
	case 0:
		return b[:i]
	case 1:
		return slices.Concat(b, []byte(pick(g, " garbage", "\n---\n", "\n---\na: b\n", "}", "\x00", "# a note\n")))
	case 2:
		return slices.Delete(slices.Clone(b), i, i+1)
	case 3:
		return slices.Insert(slices.Clone(b), i, pick(g, byte('"'), ',', '{', '\\', 0xff, '\n', ':'))
	}
	return bytes.Replace(b, []byte(`"`), []byte(`'`), g.IntN(4))
}

func (g generator) spec() object {
	s := object{
		"cdiVersion": pick(g, "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0", "1.1.0", "1.1.0", "v1.1.0"),
		"kind":       pick(g, "vendor.com/gpu", "v/c", "a-b.c/d_e", "vendor.com/dotted.class"),
	}
	var devices []any
	for i := range 1 + g.IntN(4) {
		d := object{"name": pick(g, "dev", "gpu-", "0", "a:") + fmt.Sprint(i), "containerEdits": g.edits()}
		if g.chance(10) {
			d["annotations"] = g.annotations()
		}
		devices = append(devices, d)
	}
	s["devices"] = devices
	if g.chance(50) {
		s["containerEdits"] = g.edits()
	}
	if g.chance(10) {
		s["annotations"] = g.annotations()
	}
	return s
}

func (g generator) annotations() object {
	a := object{}
	for range g.IntN(3) {
		a[pick(g, "a", "example.com/b", "B.c_d")] = pick[any](g, "x", "", 1, true)
	}
	return a
}

func (g generator) env() []any {
	var env []any
	for range 1 + g.IntN(3) {
		env = append(env, pick(g, "A=b", "LONG_NAME=with a value", "EMPTY=", "U=\u00e9\u20ac\U0001f600", "Q=\"\\\n\t"))
	}
	return env
}

func (g generator) edits() object {
	e := object{}
	for len(e) == 0 || g.chance(40) {
		switch g.IntN(7) {
		case 0:
			e["env"] = g.env()
		case 1:
			var list []any
			for range 1 + g.IntN(3) {
				n := object{"path": pick(g, "/dev/null", "/dev/a/b")}
				g.maybe(n, "hostPath", "/dev/zero", "/dev/null")
				g.maybe(n, "type", "c", "b", "u", "p", "")
				g.maybe(n, "major", 0, 1, 195)
				g.maybe(n, "minor", 0, 3, 255)
				g.maybe(n, "fileMode", 0o666, 0, 0o7777)
				g.maybe(n, "permissions", "rwm", "r", "", "none")
				g.maybe(n, "uid", 0, 1000, int64(4294967295))
				g.maybe(n, "gid", 0, 44)
				list = append(list, n)
			}
			e["deviceNodes"] = list
		case 2:
			var list []any
			for i := range 1 + g.IntN(2) {
				list = append(list, object{"hostInterfaceName": fmt.Sprint("eth", i), "name": fmt.Sprint("net", i)})
			}
			e["netDevices"] = list
		case 3:
			h := object{"hookName": pick(g, "prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"), "path": "/bin/true"}
			g.maybe(h, "args", []any{"true", "-x"}, []any{})
			g.maybe(h, "timeout", 1, 30)
			if g.chance(30) {
				h["env"] = g.env()
			}
			e["hooks"] = []any{h}
		case 4:
			var list []any
			for range 1 + g.IntN(3) {
				m := object{"hostPath": "/usr/lib/x.so", "containerPath": "/usr/lib/y.so"}
				g.maybe(m, "options", []any{"ro", "bind"}, []any{})
				g.maybe(m, "type", "bind", "", "none")
				list = append(list, m)
			}
			e["mounts"] = list
		case 5:
			rdt := object{}
			g.maybe(rdt, "closID", "group", "/", "")
			g.maybe(rdt, "l3CacheSchema", "L3:0=ff")
			g.maybe(rdt, "memBwSchema", "MB:0=50")
			g.maybe(rdt, "schemata", []any{"L3:0=f"}, []any{})
			g.maybe(rdt, "enableMonitoring", true, false)
			e["intelRdt"] = rdt
		case 6:
			e["additionalGids"] = pick(g, []any{1, 44}, []any{0}, []any{})
		}
	}
	return e
}

func (g generator) maybe(o object, key string, from ...any) {
	if g.chance(35) {
		o[key] = pick(g, from...)
	}
}

// spoil replaces one value with another that is often invalid.
func (g generator) spoil(root object) {
	var spots []func(any)
	var keys []func(string)
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case object:
			names := make([]string, 0, len(v))
			for k := range v {
				names = append(names, k)
			}
			slices.Sort(names)
			for _, k := range names {
				spots = append(spots, func(x any) { v[k] = x })
				keys = append(keys, func(n string) { v[n] = v[k]; delete(v, k) })
				walk(v[k])
			}
		case []any:
			for i := range v {
				spots = append(spots, func(x any) { v[i] = x })
				walk(v[i])
			}
		}
	}
	walk(root)
	if g.chance(20) {
		keys[g.IntN(len(keys))](pick(g, "unknown", "Env", "path", "name", "type", "BAD KEY", ""))
		return
	}
	spots[g.IntN(len(spots))](pick[any](g, nil, "", "relative", "/", 0, -1, 1.5, 1e3, true, object{}, []any{}, []any{nil}, object{"x": 1},
		strings.Repeat("x", 64), "=x", "a=b", "0.5.0", "v.com/x", 1<<33, "..", "d"))
}
