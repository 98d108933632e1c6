// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/jackfield/jackfield/pkg/hostfs"
	buildinfo "github.com/jackfield/jackfield/pkg/version"
)

// maxConf bounds the network configuration, which holds a previous result of
// any length.
const maxConf = 4 << 20

// versions are the specification's versions that the plugin speaks.
var versions = []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// Plugin is one execution of the plugin. Environ is the process's environment,
// NAME=value; the zero Host is the machine's own root.
type Plugin struct {
	Environ        []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Host           hostfs.Root

	// reached is told of each step, by tests that stop the plugin there.
	reached func(step string)
}

// params are the parameters of an operation (§2, Parameters), and what came by
// standard input.
type params struct {
	ContainerID, Netns, IfName, Args, Path, NetnsOverride string
	StdinData                                             []byte
}

// call is one operation under way.
type call struct {
	*Plugin
	params
	ctx     context.Context
	command string
	version string // of the configuration
	conf    *conf
}

// operation is one of the specification's (§2, CNI operations).
type operation struct {
	required   []string // environment variables
	since      string   // the version that brought it
	attachment bool     // it is about one attachment
	permissive bool     // it undoes: a configuration that ADD would refuse is no reason not to
	run        func(*call) error
}

var operations = map[string]operation{
	"ADD":    {required: []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"}, attachment: true, run: (*call).add},
	"DEL":    {required: []string{"CNI_CONTAINERID", "CNI_IFNAME"}, attachment: true, permissive: true, run: (*call).del},
	"CHECK":  {required: []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"}, since: "0.4.0", attachment: true, run: (*call).check},
	"STATUS": {since: "1.1.0", run: (*call).status},
	"GC":     {required: []string{"CNI_PATH"}, since: "1.1.0", permissive: true, run: (*call).gc},
}

// Run does what CNI_COMMAND says. A result, or the error as the specification has
// it, goes to Stdout; the error is returned too.
func (p *Plugin) Run(ctx context.Context) error {
	if p.getenv("CNI_COMMAND") == "" && !p.called() {
		_, err := fmt.Fprintf(p.Stderr, "%s\njackfield-cni is a CNI plugin: a container runtime runs it, by a network configuration.\nCNI protocol versions supported: %s\n",
			buildinfo.Line("jackfield-cni"), strings.Join(versions, ", "))
		return err
	}
	c := &call{Plugin: p, ctx: ctx, command: p.getenv("CNI_COMMAND")}
	err := c.dispatch()
	if err == nil {
		return nil
	}
	e := asError(err)
	out := struct {
		Version string `json:"cniVersion"`
		*types.Error
	}{c.version, e}
	if out.Version == "" {
		out.Version = versions[len(versions)-1]
	}
	data, jsonErr := json.MarshalIndent(out, "", "    ")
	if jsonErr == nil {
		_, jsonErr = p.Stdout.Write(append(data, '\n'))
	}
	return errors.Join(err, jsonErr)
}

// called tells a runtime's call from that of a person who looks what this is.
func (p *Plugin) called() bool {
	for _, kv := range p.Environ {
		if strings.HasPrefix(kv, "CNI_") {
			return true
		}
	}
	return false
}

func (p *Plugin) getenv(name string) string {
	for i := len(p.Environ) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(p.Environ[i], name+"="); ok {
			return v
		}
	}
	return ""
}

func (p *Plugin) step(name string) {
	if p.reached != nil {
		p.reached(name)
	}
}

func (c *call) dispatch() error {
	if c.command == "VERSION" {
		return c.versionInfo()
	}
	op, ok := operations[c.command]
	if !ok {
		return environment("CNI_COMMAND", c.command, "ADD, DEL, CHECK, STATUS, GC or VERSION")
	}
	envErr := c.readEnvironment(op)
	data, err := c.readStdin()
	if err != nil {
		return err
	}
	c.StdinData = data
	head, err := decodeHead(data)
	if err != nil {
		return firstOf(envErr, err)
	}
	c.version = head.version
	switch {
	case envErr != nil:
		return envErr
	case !head.supported:
		return fail(codeVersion, "incompatible CNI versions", "the configuration is of version %q, the plugin supports %s", short(head.version), strings.Join(versions, ", "))
	case op.since != "" && older(head.version, op.since):
		return fail(codeVersion, "incompatible CNI versions", "the configuration is of version %q, which has no %s; it came with %s", short(head.version), c.command, op.since)
	}
	if err := checkNetworkName(head.name); err != nil {
		return err
	}
	if c.conf, err = parseConf(data, op.permissive); err != nil {
		return err
	}
	return op.run(c)
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// readEnvironment reads the parameters (§2, Parameters).
func (c *call) readEnvironment(op operation) error {
	c.params = params{
		ContainerID: c.getenv("CNI_CONTAINERID"), Netns: c.getenv("CNI_NETNS"), IfName: c.getenv("CNI_IFNAME"),
		Args: c.getenv("CNI_ARGS"), Path: c.getenv("CNI_PATH"), NetnsOverride: c.getenv("CNI_NETNS_OVERRIDE"),
	}
	var missing []string
	for _, name := range op.required {
		if c.getenv(name) == "" {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fail(codeEnvironment, "required environment variables missing: "+strings.Join(missing, ", "), "%s needs %s", c.command, strings.Join(op.required, ", "))
	}
	if !op.attachment {
		return nil
	}
	if err := utils.ValidateContainerID(c.ContainerID); err != nil {
		return environment("CNI_CONTAINERID", c.ContainerID, "a letter or digit, then letters, digits, _ . and -")
	}
	if err := utils.ValidateInterfaceName(c.IfName); err != nil {
		return environment("CNI_IFNAME", c.IfName, `1 to 15 bytes without "/", ":" and white space, and not "." or ".."`)
	}
	return nil
}

func (c *call) readStdin() ([]byte, error) {
	data, err := hostfs.ReadAtMost(c.Stdin, maxConf)
	if err != nil {
		return nil, fail(codeIO, "failed to read the network configuration", "standard input: %v", err)
	}
	return data, nil
}

// versionInfo answers VERSION (§5, Version) with the version it was asked with.
func (c *call) versionInfo() error {
	data, err := c.readStdin()
	if err != nil {
		return err
	}
	out := struct {
		Version   string   `json:"cniVersion"`
		Supported []string `json:"supportedVersions"`
	}{versions[len(versions)-1], versions}
	if len(data) > 0 {
		var in struct {
			Version string `json:"cniVersion"`
		}
		if err := json.Unmarshal(data, &in); err != nil {
			return fail(codeDecode, "failed to decode the version info", "standard input: %v", err)
		}
		if in.Version != "" {
			out.Version = in.Version
		}
	}
	return json.NewEncoder(c.Stdout).Encode(out)
}

// head is what is read of a configuration before its keys are judged.
type head struct {
	name, version string
	supported     bool
}

func decodeHead(data []byte) (head, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(data, &top); err != nil {
		return head{}, fail(codeDecode, "failed to decode the network configuration", "%s", jsonProblem(data, err))
	}
	h := head{version: "0.1.0"} // what a configuration without a version has
	for _, f := range []struct {
		key string
		to  *string
	}{{"name", &h.name}, {"cniVersion", &h.version}} {
		if raw, ok := top[f.key]; ok {
			if err := json.Unmarshal(raw, f.to); err != nil {
				return h, fail(codeDecode, "failed to decode the network configuration", "%s: found %s, want a string", f.key, short(compact(raw)))
			}
		}
	}
	if _, _, _, err := version.ParseVersion(h.version); err != nil {
		return h, fail(codeDecode, "failed to decode version info", "cniVersion: found %q, want major.minor.patch", short(h.version))
	}
	for _, v := range versions {
		h.supported = h.supported || v == h.version
	}
	return h, nil
}

// jsonProblem says where JSON is wrong.
func jsonProblem(data []byte, err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		if kind.Field != "" {
			return kind.Field + ": found a JSON " + kind.Value
		}
		return "found a JSON " + kind.Value + ", want a map"
	}
	if !errors.As(err, &syntax) {
		return err.Error()
	}
	before := data[:min(max(int(syntax.Offset)-1, 0), len(data))]
	line := 1 + strings.Count(string(before), "\n")
	return fmt.Sprintf("line %d, column %d: %v", line, len(before)-strings.LastIndexByte(string(before), '\n'), err)
}

// older reports whether version v, which is valid, came before w.
func older(v, w string) bool {
	atLeast, err := version.GreaterThanOrEqualTo(v, w)
	return err == nil && !atLeast
}

func checkNetworkName(name string) error {
	if err := utils.ValidateNetworkName(name); err != nil {
		return invalid("name", fmt.Sprintf("%q", short(name)), "a letter or digit, then letters, digits, _ . and -")
	}
	return nil
}

// pluginPaths are the directories of CNI_PATH.
func (c *call) pluginPaths() []string { return filepath.SplitList(c.Path) }
