// SPDX-License-Identifier: Apache-2.0

package netavark

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/internal/base/diag"
	buildinfo "github.com/jackfield/jackfield/internal/base/version"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/rootless"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/internal/port/record"
)

const (
	program = "jackfield-netavark"
	// adapter marks the records of this plugin.
	adapter = "netavark"
	// apiVersion is the version of netavark's plugin API.
	apiVersion = "1.0.0"
	// maxInput bounds standard input, in bytes.
	maxInput = 4 << 20
)

// Plugin is one execution of the plugin. The zero Host is the root of this machine.
type Plugin struct {
	Args           []string // without the program's name
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Host           hostfs.Root

	// reached is called after each step. Tests stop the plugin there.
	reached func(step string)
}

// Run runs the command in Args. It prints the result or the error to Stdout in netavark's format,
// and returns the error. A *UsageError is not printed, because only a user passes flags.
func (p *Plugin) Run(ctx context.Context) error {
	err := p.runCommand(ctx)
	var usageErr *UsageError
	if err == nil || errors.As(err, &usageErr) {
		return err
	}
	message := struct {
		Error string `json:"error"`
	}{errorText(err)}
	return errors.Join(err, p.print(message))
}

// errorText returns the text of an error for a user. Package attach locates the invalid value in
// the details.
func errorText(err error) string {
	var e *types.Error
	switch {
	case !errors.As(err, &e):
		return diag.ErrorText(err)
	case e.Details == "":
		return e.Msg
	case strings.HasPrefix(e.Msg, "invalid network configuration"):
		return e.Details
	}
	return e.Msg + ": " + e.Details
}

// print prints a result. Paths keep their "&" and "<", which JSON permits.
func (p *Plugin) print(v any) error {
	e := json.NewEncoder(p.Stdout)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// runCommand runs a command of netavark's plugin API. Without arguments it is info.
func (p *Plugin) runCommand(ctx context.Context) error {
	if len(p.Args) > 0 && strings.HasPrefix(p.Args[0], "-") {
		return p.runFlag(p.Args[0])
	}
	command, arguments := "info", 0
	if len(p.Args) > 0 {
		command, arguments = p.Args[0], len(p.Args)-1
	}
	required, known := map[string]int{"info": 0, "create": 0, "setup": 1, "teardown": 1}[command]
	switch {
	case !known:
		return invalid("command", command, "info, create, setup or teardown")
	case arguments != required && required == 1:
		return fmt.Errorf("%s: %d arguments: requires exactly one, the path of the container's network namespace",
			command, arguments)
	case arguments != required:
		return fmt.Errorf("%s: %d arguments: takes none", command, arguments)
	case command == "info":
		return p.print(map[string]string{"version": buildinfo.Get().Version, "api_version": apiVersion})
	}
	data, err := hostfs.ReadAtMost(p.Stdin, maxInput)
	if err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	switch command {
	case "create":
		return p.createNetwork(data)
	case "setup":
		return p.setUp(ctx, data, p.Args[1])
	}
	return p.tearDown(ctx, data, p.Args[1])
}

// runFlag prints the help or the version.
func (p *Plugin) runFlag(flag string) (err error) {
	switch flag {
	case "--help", "-h":
		_, err = io.WriteString(p.Stdout, usage)
	case "--version":
		_, err = fmt.Fprintln(p.Stdout, buildinfo.Line(program))
	default:
		err = &UsageError{fmt.Errorf("unknown flag %s (run `%s --help`)", diag.Quote(flag), program)}
	}
	return err
}

// locate sets the attachment's directories and its configuration file from the configuration of the
// node, or of the user whose Podman runs the plugin. Root's records are always in the default
// directory, where the reconciler of the NRI plugin reads them.
func (p *Plugin) locate(o options, t *attach.Attachment) error {
	t.StateDir = attach.DefaultStateDir
	outside, inside := hostfs.UserNamespace()
	uid, isRootless := rootless.User(p.Host, outside, inside)
	if isRootless {
		t.ConfigFile = rootless.ConfigFile(p.Host, uid)
	}
	t.ConfigFile = cmp.Or(t.ConfigFile, config.DefaultPath)
	t.NodeConfigFile = t.ConfigFile
	if file := o["configFile"]; file != "" && file != t.ConfigFile {
		if err := p.chooseConfigFile(o, t, file); err != nil {
			return err
		}
	}
	cfg, err := config.Load(p.Host, t.ConfigFile, config.Options{RequireOwner: true})
	switch {
	case errdefs.IsNotFound(err) && o["configFile"] == "":
		cfg = config.Default() // like jackfield-cni; it has no vswitch
	case errdefs.IsNotFound(err):
		return fmt.Errorf("option configFile: %s does not exist: create it, or remove the option",
			diag.Quote(t.ConfigFile))
	case err != nil:
		return fmt.Errorf("load the node's configuration: %w", err)
	}
	if len(cfg.Sockets.Roots) == 0 {
		return fmt.Errorf("%s: sockets.roots is empty: the first root must be the directory for the sockets "+
			"of networks", t.ConfigFile)
	}
	t.ClaimsDir, t.SocketDir, t.InfoDir = sockdir.ClaimsDir(cfg.StateDir), cfg.Sockets.Roots[0], cfg.DeviceInfo.CNIDir
	t.SocketDirSize = cfg.Sockets.DirectoryBytes()
	if isRootless {
		state := rootless.StateDir(uid, cfg)
		t.StateDir, t.ClaimsDir = path.Join(state, "cni"), sockdir.ClaimsDir(state)
		t.SocketDirSize = 0 // a vswitch does not see the user's mounts
	}
	return nil
}

// chooseConfigFile sets another configuration file if the node's configuration lists it.
func (p *Plugin) chooseConfigFile(o options, t *attach.Attachment, file string) error {
	if rule := t.SetValue("configFile", file); rule != "" {
		return o.invalid("configFile", rule)
	}
	node, err := t.NodeConfig()
	if err == nil && !node.AllowsLocation("configFile", file) {
		err = fmt.Errorf("option configFile: invalid value %s: a network can choose only a file that the node's "+
			"configuration lists: remove the option, or add the file to %s of %s",
			diag.Quote(file), config.LocationList("configFile"), t.NodeConfigFile)
	}
	return err
}

// newAttachment returns an attachment to a network with the given options.
func (p *Plugin) newAttachment(key record.Key, o options) *attach.Attachment {
	return &attach.Attachment{Key: key, Adapter: adapter, Root: p.Host, Log: p.Stderr, Program: program, Source: o,
		Reached: p.reached}
}
