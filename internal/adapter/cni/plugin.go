// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/name"
	buildinfo "github.com/jackfield/jackfield/internal/base/version"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/internal/port/ipam"
	"github.com/jackfield/jackfield/internal/port/network"
)

// maxConf bounds the network configuration, which contains a previous result of unlimited length.
const maxConf = 4 << 20

// maxOperationTime bounds every operation except ADD, for which a runtime that stops waiting runs
// DEL. The kubelet waits four minutes for a sandbox.
const maxOperationTime = attach.MaxTimeout

// Plugin is one execution of the plugin. Environ is the environment of the process, NAME=value. The
// zero Host is the root of this machine.
type Plugin struct {
	Environ        []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Host           hostfs.Root

	// reached is called after each step. Tests stop the plugin there.
	reached func(step string)
	// maxTime replaces maxOperationTime in tests.
	maxTime time.Duration
}

// call is one running operation.
type call struct {
	*Plugin
	ctx     context.Context
	command string
	version string // the configuration's version
	conf    *network.Config

	// Only for ADD.
	prev *types100.Result // result of the previous plugin; nil for the first plugin
	ips  []string         // requested by CNI_ARGS or args, in addition to runtimeConfig
}

// operation is an operation of the specification (§2, CNI operations).
type operation struct {
	required   []string // environment variables
	since      string   // first version of the specification with the operation
	attachment bool     // concerns one attachment
	permissive bool     // also runs with a configuration that ADD refuses
	run        func(*call) error
}

var operations = map[string]operation{
	"ADD": {required: []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"}, attachment: true,
		run: (*call).addAttachment},
	"DEL": {required: []string{"CNI_CONTAINERID", "CNI_IFNAME"}, attachment: true, permissive: true,
		run: (*call).deleteAttachment},
	"CHECK": {required: []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"}, since: "0.4.0", attachment: true,
		run: (*call).checkAttachment},
	"STATUS": {since: "1.1.0", run: (*call).checkStatus},
	"GC":     {required: []string{"CNI_PATH"}, since: "1.1.0", permissive: true, run: (*call).collectGarbage},
}

// Run runs the operation of CNI_COMMAND. It prints the result or the error to Stdout in the
// specification's format, and returns the error.
func (p *Plugin) Run(ctx context.Context) error {
	if p.getenv("CNI_COMMAND") == "" && !p.hasCNIEnvironment() {
		_, err := fmt.Fprintf(p.Stderr, "%s\njackfield-cni is a CNI plugin. A container runtime runs it for a "+
			"network configuration.\nCNI protocol versions supported: %s\n",
			buildinfo.Line("jackfield-cni"), strings.Join(network.Versions, ", "))
		return err
	}
	c := &call{Plugin: p, ctx: ctx, command: p.getenv("CNI_COMMAND")}
	err := c.dispatch()
	if err == nil {
		return nil
	}
	out := struct {
		Version string `json:"cniVersion"`
		*types.Error
	}{cmp.Or(c.version, network.Versions[len(network.Versions)-1]), attach.AsError(err)}
	data, jsonErr := json.MarshalIndent(out, "", "    ")
	if jsonErr == nil {
		_, jsonErr = p.Stdout.Write(append(data, '\n'))
	}
	return errors.Join(err, jsonErr)
}

// hasCNIEnvironment reports whether a runtime runs the plugin, and not a user in a shell.
func (p *Plugin) hasCNIEnvironment() bool {
	return slices.ContainsFunc(p.Environ, func(kv string) bool { return strings.HasPrefix(kv, "CNI_") })
}

// getenv returns the last value of a variable, or "".
func (p *Plugin) getenv(name string) string {
	for _, kv := range slices.Backward(p.Environ) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// dispatch runs the command. The version in the configuration is read first, because errors are printed in the
// format of that version.
func (c *call) dispatch() error {
	if c.command == "VERSION" {
		return c.versionInfo()
	}
	op, ok := operations[c.command]
	if !ok {
		return c.environment("CNI_COMMAND", "must be ADD, DEL, CHECK, STATUS, GC or VERSION")
	}
	data, err := c.readStdin()
	if err != nil {
		return err
	}
	c.conf, err = network.ParseHeader(data)
	if err == nil {
		c.version = c.conf.Version
	}
	if err := cmp.Or(c.checkEnvironment(op), err); err != nil {
		return err
	}
	if err := network.CheckVersion(c.version); err != nil {
		return err
	}
	if op.since != "" && isOlder(c.version, op.since) {
		return attach.Fail(codeVersion, "incompatible CNI versions",
			"the configuration has version %q; %s needs version %s or later", diag.Excerpt(c.version,
				diag.MaxExcerpt), c.command, op.since)
	}
	if err := c.conf.ReadKeys(op.permissive); err != nil {
		return err
	}
	t := &c.conf.Attachment
	t.ContainerID, t.Netns, t.Interface = c.getenv("CNI_CONTAINERID"), c.getenv("CNI_NETNS"), c.getenv("CNI_IFNAME")
	t.Root, t.Log, t.Program, t.Release, t.Reached = c.Host, c.Stderr, "jackfield-cni", c.releaseAddresses, c.reached
	if err := c.conf.ApplyLocations(op.permissive); err != nil {
		return err
	}
	if c.getenv(ipam.NestedMark) != "" {
		if op.permissive {
			return nil // ADD was refused, so there is nothing to remove
		}
		return attach.Fail(codeConfig, "invalid network configuration: ipam",
			"jackfield-cni was started by the IPAM plugin of its own network: use an IPAM plugin that does not run "+
				"jackfield-cni")
	}
	if c.command != "ADD" {
		limited, cancel := context.WithTimeout(c.ctx, cmp.Or(c.maxTime, maxOperationTime))
		defer cancel()
		c.ctx = limited
	}
	return op.run(c)
}

// checkEnvironment checks the parameters (§2, Parameters).
func (c *call) checkEnvironment(op operation) error {
	var missing []string
	for _, name := range op.required {
		if c.getenv(name) == "" {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return attach.Fail(codeEnvironment, "required environment variables missing: "+strings.Join(missing, ", "),
			"%s needs %s", c.command, strings.Join(op.required, ", "))
	}
	if !op.attachment {
		return nil
	}
	if err := utils.ValidateContainerID(c.getenv("CNI_CONTAINERID")); err != nil {
		return c.environment("CNI_CONTAINERID", "must be a letter or digit, then letters, digits, _ . and -")
	}
	if !name.IsInterface(c.getenv("CNI_IFNAME")) {
		return c.environment("CNI_IFNAME", "must be "+name.InterfaceRule)
	}
	return nil
}

// readStdin reads the network configuration, of at most maxConf bytes.
func (c *call) readStdin() ([]byte, error) {
	data, err := hostfs.ReadAtMost(c.Stdin, maxConf)
	if err != nil {
		return nil, attach.Fail(codeIO, "failed to read the network configuration", "standard input: %v", err)
	}
	return data, nil
}

// versionInfo replies to VERSION (§5, Version) with the version of the request.
func (c *call) versionInfo() error {
	data, err := c.readStdin()
	if err != nil {
		return err
	}
	out := struct {
		Version   string   `json:"cniVersion"`
		Supported []string `json:"supportedVersions"`
	}{network.Versions[len(network.Versions)-1], network.Versions}
	if len(data) > 0 {
		root, err := network.ParseObject("the version info", data)
		if err != nil {
			return err
		}
		if n := root.Member("cniVersion"); n != nil && n.Kind == jsontree.String && n.Text != "" {
			out.Version = n.Text
		}
	}
	return json.NewEncoder(c.Stdout).Encode(out)
}

// isOlder reports whether version v, which is valid, is before w.
func isOlder(v, w string) bool {
	atLeast, err := version.GreaterThanOrEqualTo(v, w)
	return err == nil && !atLeast
}
