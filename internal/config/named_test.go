// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNamedSocketsAreRead(t *testing.T) {
	c, err := Parse([]byte(`
sockets:
  named:
    spire: {path: /run/spire/agent.sock, at: /run/spire/agent.sock, create: wait}
    ovs-db: {path: /run/openvswitch/db.sock}
    grout: {path: /run/grout.sock, at: /var/run/jackfield/named/grout/grout.sock}
`), "c.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]NamedSocket{
		"spire":  {Path: "/run/spire/agent.sock", At: "/run/spire/agent.sock", Create: SocketWait},
		"ovs-db": {Path: "/run/openvswitch/db.sock", At: "/var/run/jackfield/named/ovs-db/db.sock", Create: SocketRefuse},
		"grout":  {Path: "/run/grout.sock", At: "/var/run/jackfield/named/grout/grout.sock", Create: SocketRefuse},
	}
	if d := cmp.Diff(want, c.Sockets.Named); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	spire := want["spire"]
	if at := spire.DefaultAt("spire"); at != "/var/run/jackfield/named/spire/agent.sock" {
		t.Errorf("the container always has the socket at %s", at)
	}
	uses := ""
	for _, dir := range c.Directories(nil) {
		if dir.Use == "named sockets" {
			uses += dir.Path + " "
		}
	}
	if uses != "/run /run/openvswitch /run/spire " {
		t.Errorf("directories of named sockets: %s", uses)
	}
}

// A named socket is not read from a directory of the system or of every user, and hides nothing in a container.
func TestFaultsOfNamedSockets(t *testing.T) {
	long := strings.Repeat("x", 63)
	name := "the name of a socket has 1 to 63 lower-case letters, digits and '-', and begins and ends with a letter or digit"
	for text, want := range map[string]string{
		"spire: {}":                             `c.yaml:3:5: sockets.named.spire.path: found nothing: a named socket has a path, where its server creates it on the host`,
		"spire: {paht: /run/s/a}":               `c.yaml:3:13: sockets.named.spire: unknown key "paht"; the keys here are path, at, create; did you mean path?`,
		"Spire: {path: /run/s/a}":               `c.yaml:3:5: sockets.named: found "Spire": ` + name,
		"-a: {path: /run/s/a}":                  `c.yaml:3:5: sockets.named: found "-a": ` + name,
		"a: /run/s/a":                           `c.yaml:3:8: sockets.named.a: invalid value "/run/s/a": must be an object`,
		"a: {path: run/s}":                      `c.yaml:3:15: sockets.named.a.path: invalid value "run/s": must be an absolute path`,
		"a: {path: /run/../etc/s}":              `c.yaml:3:15: sockets.named.a.path: invalid value "/run/../etc/s": must be a path without //, /./, /../ and without / at the end; this is "/etc/s"`,
		"a: {path: /proc/1/root/s}":             `c.yaml:3:15: sockets.named.a.path: found "/proc/1/root/s": sockets are not delivered from /proc`,
		"a: {path: /dev/log}":                   `c.yaml:3:15: sockets.named.a.path: found "/dev/log": sockets are not delivered from /dev`,
		"a: {path: /tmp/s}":                     `c.yaml:3:15: sockets.named.a.path: found "/tmp/s": any user of the host can create a socket in /tmp`,
		"a: {path: /s}":                         `c.yaml:3:15: sockets.named.a.path: invalid value "/s": must be a path in a directory below /`,
		"a: {path: /run/" + long + long + "}":   `: a socket's path has at most 107 bytes`,
		"a: {path: /run/s/a, at: /etc/a}":       `c.yaml:3:29: sockets.named.a.at: found "/etc/a": the directory of the socket is mounted in the container, where it would hide what the image or the system has in /etc`,
		"a: {path: /run/s/a, at: /run/a}":       `c.yaml:3:29: sockets.named.a.at: found "/run/a": the directory of the socket is mounted in the container, where it would hide what the image or the system has in /run`,
		"a: {path: /run/s/a, at: /libexec/x/a}": `c.yaml:3:29: sockets.named.a.at: found "/libexec/x/a": the directory of the socket is mounted in the container, where it would hide what the image or the system has in /libexec`,
		"a: {path: /run/s/a, at: /run/jackfield/net/net1/a}": `c.yaml:3:5: sockets.named.a.at: found "/run/jackfield/net/net1/a": Jackfield's own directory in a container is for ` +
			`"/var/run/jackfield/named/a/a", where the socket is anyway`,
		"a: {path: /run/s/a, create: later}":             `c.yaml:3:33: sockets.named.a.create: invalid value "later": must be one of refuse, wait`,
		"a: {path: /run/jackfield/containers/c/s}":       `c.yaml:3:15: sockets.named.a.path: found "/run/jackfield/containers/c/s": the socket must not be in containers/ of stateDir, "/run/jackfield"`,
		"a: {path: /run/s/a}\n    a: {path: /run/s/b}":   `c.yaml:4:5: sockets.named.a: found the key a second time: it is already in line 3`,
		long + ": {path: /run/" + long[:40] + "/s.sock}": "",
		long + ": {path: /run/s/" + long[:40] + "}":      `a socket's path has at most 107 bytes; in a container it would be "/var/run/jackfield/named/` + long + `/` + strings.Repeat("x", 37) + `"... (129 bytes)`,
	} {
		_, err := Parse([]byte("sockets:\n  named:\n    "+text+"\n"), "c.yaml")
		if want == "" && err == nil {
			continue
		}
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got\n%v\nwant\n%s", text, err, want)
		}
	}
}
