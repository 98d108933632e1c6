// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"
)

const maxResult = 4 << 20

// delegate runs the IPAM plugin with the configuration as it came and with the
// environment that this one got (§4, Delegated plugin protocol), where command may
// be another operation, by which a failed ADD is undone, and more other parameters,
// NAME=value. It gives what the plugin printed. (cni's own invoke package would bring
// OpenTelemetry into the binary.)
func (c *call) delegate(command string, more ...string) ([]byte, error) {
	name := c.conf.ipam
	if len(c.pluginPaths()) == 0 {
		return nil, fail(codeEnvironment, "required environment variables missing: CNI_PATH", "ipam.type %q has to be found there", name)
	}
	file := c.findPlugin(name)
	if file == "" {
		return nil, invalid("ipam.type", `"`+name+`"`, "an executable in CNI_PATH, "+c.Path)
	}
	more = append(more, "CNI_COMMAND="+command)
	env := slices.DeleteFunc(slices.Clone(c.Environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.ContainsFunc(more, func(m string) bool { return strings.HasPrefix(m, name+"=") })
	})
	var out bytes.Buffer
	for try := 0; ; try++ {
		out.Reset()
		cmd := exec.CommandContext(c.ctx, file)
		cmd.Env = append(env, more...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(c.StdinData), &limited{&out, maxResult}, c.Stderr
		err := cmd.Run()
		if errors.Is(err, unix.ETXTBSY) && try < 5 { // the executable is being replaced
			time.Sleep(200 * time.Millisecond)
			continue
		}
		if err != nil {
			return nil, ipamError(command, name, out.Bytes(), err)
		}
		return out.Bytes(), nil
	}
}

// findPlugin is the path of an executable in CNI_PATH, "" for none.
func (c *call) findPlugin(name string) string {
	for _, dir := range c.pluginPaths() {
		file := filepath.Join(dir, name)
		if st, err := os.Stat(file); dir != "" && err == nil && st.Mode().IsRegular() {
			return file
		}
	}
	return ""
}

// limited is a writer that takes so many bytes and no more.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, fmt.Errorf("it printed more than %d bytes: %w", maxResult, errdefs.ErrResourceExhausted)
	}
	l.left -= len(p)
	return l.w.Write(p)
}

// ipamError passes an error of the IPAM plugin on, code and all.
func ipamError(command, name string, out []byte, err error) error {
	e := &types.Error{}
	if json.Unmarshal(out, e) != nil || e.Code == 0 { // which is no error's
		return fail(codeIO, "IPAM plugin "+name+" failed", "%s: %v %s", command, err, short(string(out)))
	}
	return types.NewError(e.Code, fmt.Sprintf("IPAM plugin %s: %s", name, e.Msg), e.Details)
}

// allocate is ADD of the IPAM plugin. When it fails it is told to DEL, so that
// nothing half done stays.
func (c *call) allocate() (*types100.Result, error) {
	out, err := c.delegate("ADD")
	var result *types100.Result
	if err == nil {
		result, err = parseResult(out, c.version)
		if err != nil {
			err = fail(codeDecode, "failed to decode the result of IPAM plugin "+c.conf.ipam, "%s", short(err.Error()))
		} else if len(result.IPs) == 0 {
			err = fail(codeConfig, "IPAM plugin "+c.conf.ipam+" gave no address", "its result has no ips")
		}
	}
	if err != nil {
		_, undo := c.delegate("DEL")
		if undo != nil {
			fmt.Fprintf(c.Stderr, "jackfield-cni: undo IPAM: %v\n", undo)
		}
		return nil, err
	}
	return result, nil
}

// parseResult reads a result of the configuration's version. Results of older
// plugins do not say their version, and those in the specification's examples do
// not either.
func parseResult(data []byte, confVersion string) (*types100.Result, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	if m == nil {
		m = map[string]json.RawMessage{}
	}
	said := ""
	if raw, ok := m["cniVersion"]; ok {
		if err := json.Unmarshal(raw, &said); err != nil {
			return nil, err
		}
	}
	if said == "" {
		said = confVersion
		m["cniVersion"], _ = json.Marshal(said)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if err := checkParts(data); err != nil {
		return nil, err
	}
	r, err := newResult(said, data)
	if err != nil {
		return nil, err
	}
	return types100.NewResultFromResult(r)
}

// resultParts is of a result, of whatever version, what its types take for granted.
type resultParts struct {
	Interfaces []*json.RawMessage `json:"interfaces"`
	IPs        []*struct {
		Address *json.RawMessage `json:"address"`
	} `json:"ips"`
	Routes []*routePart `json:"routes"`
	IP4    *ipPart      `json:"ip4"` // until 0.2.0
	IP6    *ipPart      `json:"ip6"`
}

type ipPart struct {
	IP     *json.RawMessage `json:"ip"`
	Routes []*routePart     `json:"routes"`
}

type routePart struct {
	Dst *json.RawMessage `json:"dst"`
}

// checkParts refuses a result with parts that are null or lack what makes them one:
// they would be passed on as addresses and routes that are none.
func checkParts(data []byte) error {
	var p resultParts
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	missing := func(format string, args ...any) error {
		return fmt.Errorf(format+": missing: %w", append(args, errdefs.ErrInvalidArgument)...)
	}
	routes := func(of string, list []*routePart) error {
		for i, r := range list {
			if r == nil || r.Dst == nil {
				return missing("%sroutes[%d].dst", of, i)
			}
		}
		return nil
	}
	for i, have := range p.Interfaces {
		if have == nil {
			return missing("interfaces[%d]", i)
		}
	}
	for i, ip := range p.IPs {
		if ip == nil || ip.Address == nil {
			return missing("ips[%d].address", i)
		}
	}
	for i, ip := range []*ipPart{p.IP4, p.IP6} {
		if ip == nil {
			continue
		}
		name := []string{"ip4", "ip6"}[i]
		if ip.IP == nil {
			return missing("%s.ip", name)
		}
		if err := routes(name+".", ip.Routes); err != nil {
			return err
		}
	}
	return routes("", p.Routes)
}
