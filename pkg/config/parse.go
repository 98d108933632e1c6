// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// MaxSize is the largest configuration file that is read, in bytes.
const MaxSize = 1 << 20

// Load reads the configuration file. A missing file is errdefs.ErrNotFound: it
// is for the caller to say whether that means [Default]. A file that others
// than its owner can write is errdefs.ErrPermissionDenied, since whoever
// writes it grants devices; so is one that a group other than root's, or the
// process's own, can write. Other faults are those of [Parse].
func Load(host hostfs.Root, path string) (*Config, error) { return load(host, path, false) }

// LoadOwned is Load for a daemon, which does what the file says for everybody: one that
// belongs to another user than root and the process's own is
// errdefs.ErrPermissionDenied, too.
func LoadOwned(host hostfs.Root, path string) (*Config, error) { return load(host, path, true) }

func load(host hostfs.Root, path string, owned bool) (*Config, error) {
	data, err := read(host, path, owned)
	if err != nil {
		return nil, fmt.Errorf("read configuration %q: %w", path, err)
	}
	return Parse(data, path)
}

// Place is where the configuration is that a command line asks for: a file of the
// caller's own, whatever the host root, or for "" the node's, DefaultPath below it.
func Place(host hostfs.Root, file string) (root hostfs.Root, path string, err error) {
	if file == "" {
		return host, DefaultPath, nil
	}
	path, err = filepath.Abs(file)
	return hostfs.Host(), path, err
}

// LoadAsked reads the file of [Place]. The node's need not be there, which is
// [Default].
func LoadAsked(host hostfs.Root, file string) (*Config, error) { return loadAsked(host, file, Load) }

// LoadAskedOwned is LoadAsked with LoadOwned.
func LoadAskedOwned(host hostfs.Root, file string) (*Config, error) {
	return loadAsked(host, file, LoadOwned)
}

func loadAsked(host hostfs.Root, file string, load func(hostfs.Root, string) (*Config, error)) (*Config, error) {
	root, path, err := Place(host, file)
	if err != nil {
		return nil, err
	}
	c, err := load(root, path)
	if file == "" && errdefs.IsNotFound(err) {
		return Default(), nil
	}
	return c, err
}

func read(host hostfs.Root, path string, owned bool) ([]byte, error) {
	return host.ReadFileIf(path, MaxSize, func(st *unix.Stat_t) error { return checkOwned(st, owned) })
}

// checkOwned refuses a file that others can write and, where owned, that belongs to
// another user.
func checkOwned(st *unix.Stat_t, owned bool) error {
	othersGroup := st.Gid != 0 && int(st.Gid) != os.Getegid()
	if st.Mode&unix.S_IFMT == unix.S_IFREG && (st.Mode&unix.S_IWOTH != 0 || st.Mode&unix.S_IWGRP != 0 && othersGroup) {
		return fmt.Errorf("its mode is %04o, and only its owner may be able to write it; chmod go-w: %w", st.Mode&0o7777, errdefs.ErrPermissionDenied)
	}
	if owned && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("it belongs to uid %d, and only root may be able to write it; chown root: %w", st.Uid, errdefs.ErrPermissionDenied)
	}
	return nil
}

// Parse reads a configuration file's content. The name file is for messages.
// An empty file is [Default]. The error joins an *Error for each fault, in the
// order of the file, and unwraps to errdefs.ErrInvalidArgument.
func Parse(data []byte, file string) (*Config, error) {
	d := &decoder{file: file, positions: make(map[string]position)}
	c := Default()
	c.file, c.text, c.positions = file, string(data), d.positions
	root, fault := d.document(data)
	if fault != nil {
		return nil, fault
	}
	if root != nil {
		d.plain(root)
		if len(d.faults) == 0 {
			d.config(c, root)
		}
	}
	if len(d.faults) > 0 {
		return nil, join(d.faults)
	}
	return c, nil
}

// document reads the one document of a file, nil for an empty one.
func (d *decoder) document(data []byte) (*yaml.Node, error) {
	whole := func(rule string) error { return &Error{File: d.file, Rule: rule} }
	switch {
	case len(data) > MaxSize:
		return nil, whole(fmt.Sprintf("the file has %d bytes; at most %d are read", len(data), MaxSize))
	case !utf8.Valid(data):
		return nil, whole("the file is not UTF-8")
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, d.syntax(err)
	}
	switch err := decoder.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		return nil, d.syntax(err)
	default:
		return nil, &Error{File: d.file, Line: second.Line, Column: second.Column, Rule: "a second YAML document; want one"}
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	return root, nil
}

// syntax makes an *Error of what the YAML parser says.
func (d *decoder) syntax(err error) error {
	e := &Error{File: d.file}
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := regexp.MustCompile(`^line (\d+): `).FindStringSubmatch(text); m != nil {
		e.Line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	e.Rule = "not YAML: " + shorten(text)
	return e
}

func (d *decoder) config(c *Config, root *yaml.Node) {
	d.object("", root,
		member{"cdi", d.section(
			member{"specDirs", d.texts(&c.CDI.SpecDirs, absolute)},
			member{"aliases", d.aliases(c.CDI.Aliases)},
			member{"extensions", d.texts(&c.CDI.Extensions, extension)},
		)},
		member{"sockets", d.section(
			member{"roots", d.texts(&c.Sockets.Roots, socketRoot)},
			member{"access", enum(d, &c.Sockets.Access, AccessACL, AccessGroup, AccessOwner)},
			member{"staging", enum(d, &c.Sockets.Staging, StagingAuto, StagingMount, StagingDirectory)},
			member{"user", d.text(&c.Sockets.User, userOrNone)},
			member{"directorySize", d.text(&c.Sockets.DirectorySize, sizeOrNone)},
			member{"selinuxLabel", d.text(&c.Sockets.SELinuxLabel, labelOrNone)},
		)},
		member{"deviceInfo", d.section(
			member{"cniDir", d.text(&c.DeviceInfo.CNIDir, absolute)},
			member{"dpDir", d.text(&c.DeviceInfo.DPDir, absolute)},
		)},
		member{"multus", d.section(
			member{"cacheDir", d.text(&c.Multus.CacheDir, absolute)},
		)},
		member{"kubelet", d.section(
			member{"podResourcesSocket", d.text(&c.Kubelet.PodResourcesSocket, absolute)},
			member{"required", d.truth(&c.Kubelet.Required)},
		)},
		member{"hook", d.section(
			member{"undeliverable", enum(d, &c.Hook.Undeliverable, UndeliverableError, UndeliverableWarn)},
			member{"askedBy", d.text(&c.Hook.AskedBy, keyValue)},
		)},
		member{"hooks", d.section(
			member{"dirs", d.texts(&c.Hooks.Dirs, absolute)},
		)},
		member{"runtime", d.section(
			member{"socket", d.text(&c.Runtime.Socket, absoluteOrNone)},
		)},
		member{"missed", enum(d, &c.Missed, MissedReport, MissedEvict)},
		member{"stateDir", d.text(&c.StateDir, stateDir)},
		member{"dialects", d.dialects(&c.Dialects)},
		member{"metrics", d.section(
			member{"listen", d.text(&c.Metrics.Listen, listenAddress)},
			member{"pprof", d.truth(&c.Metrics.PProf)},
		)},
		member{"audit", d.section(
			member{"file", d.text(&c.AuditLog.File, absoluteOrNone)},
		)},
		member{"policy", d.section(
			member{"mode", enum(d, &c.Policy.Mode, Enforce, Audit)},
			member{"rules", d.rules(&c.Policy.Rules)},
		)},
		member{"validate", d.section(
			member{"devices", d.truth(&c.Validate.Devices)},
			member{"mounts", d.truth(&c.Validate.Mounts)},
			member{"except", d.texts(&c.Validate.Except, pluginName)},
		)},
		member{"compat", d.section(
			member{"deviceInjector", d.truth(&c.Compat.DeviceInjector)},
		)},
	)
	d.apart(c, root)
}

func (d *decoder) section(members ...member) reader {
	return func(field string, node *yaml.Node) { d.object(field, node, members...) }
}

// apart keeps the directories in which pods' sockets are looked for away from
// the one in which Jackfield makes what containers see.
func (d *decoder) apart(c *Config, root *yaml.Node) {
	for i, dir := range c.Sockets.Roots {
		if !contains(dir, c.StateDir) && !contains(c.StateDir+"/containers", dir) {
			continue
		}
		field := "sockets.roots[" + strconv.Itoa(i) + "]"
		at := &yaml.Node{Line: root.Line, Column: root.Column}
		// The roots may be the default ones; then the file said stateDir.
		for _, name := range []string{"stateDir", field} {
			if p, ok := d.positions[name]; ok {
				at.Line, at.Column = p.line, p.column
			}
		}
		d.fault(field, at, quote(dir), "the directory must not hold stateDir, "+quote(c.StateDir)+", nor lie in its containers/")
	}
}

func (d *decoder) aliases(into map[string]string) reader {
	return func(field string, node *yaml.Node) {
		d.pairs(field, node, func(key, value *yaml.Node) {
			at := join2(field, key.Value)
			if broken := aliasName(key.Value); broken != "" {
				d.fault(field, key, found(key), broken)
				return
			}
			d.mark(at, value)
			if kind, ok := d.str(at, value, cdiKind); ok {
				into[key.Value] = kind
			}
		})
	}
}

func (d *decoder) dialects(into *[]Dialect) reader {
	return func(field string, node *yaml.Node) {
		if none(node) {
			return
		}
		d.list(field, node, func(at string, element *yaml.Node) {
			var one Dialect
			before := len(d.faults)
			d.object(at, element,
				member{"match", d.section(
					member{"network", d.text(&one.Match.Network, pattern)},
					member{"resource", d.text(&one.Match.Resource, pattern)},
				)},
				member{"use", enum(d, &one.Use, DialectNames()...)},
				member{"creator", enum(d, &one.Creator, SideHost, SideApplication)},
				member{"path", enum(d, &one.Path, SideHost, SideContainer)},
			)
			switch {
			case len(d.faults) > before:
			case one.Match == DialectMatch{}:
				d.fault(at+".match", element, "nothing", "say what the dialect is for: network, resource or both")
			case one.Use == "" && one.Creator == "" && one.Path == "":
				d.fault(at, element, "nothing but a match", "say what is different: use, creator or path")
			}
			if one.Use == "" {
				one.Use = Specification
			}
			*into = append(*into, one)
		})
	}
}

// none reports an empty list. No rules and no dialects cannot be
// misunderstood, and templates write them.
func none(node *yaml.Node) bool {
	return node.Kind == yaml.SequenceNode && len(node.Content) == 0
}

// keyValue accepts an annotation, KEY=VALUE, or nothing.
func keyValue(s string) string {
	if key, value, ok := strings.Cut(s, "="); s != "" && (!ok || key == "" || value == "") {
		return "want an annotation, KEY=VALUE"
	}
	return ""
}
