// SPDX-License-Identifier: Apache-2.0

package cniconf_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// Invalid calls fail with the error codes of CNI's skel package. noop is built with that package.
func TestErrorCodesAgreeWithSkel(t *testing.T) {
	k := require(t)
	r := newRuntime(t, k.Upstream)
	netns := r.attachment("c1").NetNS
	conf := `{"cniVersion": "1.1.0", "name": "dbnet", ` + server + `, "cni.dev/valid-attachments": []}`
	version := func(v string) string { return strings.Replace(conf, "1.1.0", v, 1) }
	with := func(command string, more ...string) []string {
		return append([]string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=" + netns}, more...)
	}
	for name, c := range map[string]struct {
		env  []string
		conf string
	}{
		"unknown command":     {with("EAT"), conf},
		"no container":        {with("ADD", "CNI_CONTAINERID="), conf},
		"bad container":       {with("DEL", "CNI_CONTAINERID=_"), conf},
		"no interface":        {with("DEL", "CNI_IFNAME="), conf},
		"bad interface":       {with("ADD", "CNI_IFNAME=.."), conf},
		"long interface":      {with("ADD", "CNI_IFNAME=abcdefghijklmnop"), conf},
		"space in interface":  {with("ADD", "CNI_IFNAME=a b"), conf},
		"no namespace":        {with("ADD", "CNI_NETNS="), conf},
		"no JSON":             {with("ADD"), "{"},
		"no name":             {with("ADD"), strings.Replace(conf, `"name": "dbnet"`, `"nom": "dbnet"`, 1)},
		"bad name":            {with("ADD"), strings.Replace(conf, "dbnet", "db net", 1)},
		"new version":         {with("ADD"), version("2.0.0")},
		"CHECK too old":       {with("CHECK"), version("0.3.1")},
		"GC too old":          {with("GC"), version("1.0.0")},
		"STATUS too old":      {with("STATUS"), version("1.0.0")},
		"GC without CNI_PATH": {with("GC", "CNI_PATH="), conf},
		"STATUS":              {with("STATUS"), conf},
		"GC":                  {with("GC"), conf},
		"DEL":                 {with("DEL"), conf},
		"DEL without netns":   {with("DEL", "CNI_NETNS="), conf},
	} {
		_, ours := r.execute("jackfield-cni", c.conf, c.env...)
		_, theirs := r.execute("noop", c.conf, c.env...)
		switch {
		case (ours == nil) != (theirs == nil):
			t.Errorf("%s: jackfield-cni returns %v, skel %v", name, ours, theirs)
		case ours != nil && ours.Code != theirs.Code:
			t.Errorf("%s: jackfield-cni has code %d (%s), skel %d (%s)", name, ours.Code, ours.Msg, theirs.Code, theirs.Msg)
		}
	}

	// In these differences jackfield-cni follows the specification.
	type reply struct {
		Version string `json:"cniVersion"`
	}
	versionOf := func(out string) string {
		var v reply
		testkit.Must(t, json.Unmarshal([]byte(out), &v))
		return v.Version
	}
	// VERSION returns the version of the request.
	ours, _ := r.execute("jackfield-cni", `{"cniVersion": "0.4.0"}`, "CNI_COMMAND=VERSION")
	theirs, _ := r.execute("noop", `{"cniVersion": "0.4.0"}`, "CNI_COMMAND=VERSION")
	if versionOf(ours) != "0.4.0" || versionOf(theirs) == "0.4.0" {
		t.Errorf("VERSION: jackfield-cni prints %s, skel %s", ours, theirs)
	}
	// An invalid version is a decoding failure.
	if _, e := r.execute("jackfield-cni", version("1.x"), with("ADD")...); e == nil || e.Code != 6 {
		t.Errorf("invalid version: %v", e)
	}
	// An error has the version in use.
	ours, _ = r.execute("jackfield-cni", version("0.4.0"), with("ADD", "CNI_IFNAME=")...)
	theirs, _ = r.execute("noop", version("0.4.0"), with("ADD", "CNI_IFNAME=")...)
	if versionOf(ours) != "0.4.0" || versionOf(theirs) != "" {
		t.Errorf("errors: jackfield-cni prints %s, skel %s", ours, theirs)
	}
	// CNI_PATH is optional without delegation.
	if _, e := r.execute("jackfield-cni", conf, with("ADD", "CNI_PATH=")...); e != nil {
		t.Errorf("ADD without CNI_PATH: %v", e)
	}
	if _, e := r.execute("jackfield-cni", conf, with("DEL", "CNI_PATH=")...); e != nil {
		t.Errorf("DEL without CNI_PATH: %v", e)
	}
	r.checkNothingLeft()
}
