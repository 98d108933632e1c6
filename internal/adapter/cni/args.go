// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/internal/port/network"
	"github.com/jackfield/jackfield/internal/source/attachment"
)

// kubernetesArgs are the keys of CNI_ARGS that Kubernetes' runtimes and Multus set.
var kubernetesArgs = []string{"K8S_POD_NAMESPACE", "K8S_POD_NAME", "K8S_POD_INFRA_CONTAINER_ID", "K8S_POD_UID"}

// cniArgs are the arguments of CNI_ARGS that this plugin uses.
type cniArgs struct {
	namespace, pod string
	ips            []string // IP: <ip>[/<prefix>], comma-separated as for the IPAM plugin static
	mac            string   // MAC
}

// parseArgs parses CNI_ARGS (conventions, CNI_ARGS): pairs separated by semicolons. An unknown key is an error
// unless IgnoreUnknown is set.
func (p *Plugin) parseArgs() (cniArgs, error) {
	var (
		a       cniArgs
		ignore  types.UnmarshallableBool
		unknown []string
	)
	bad := func(pair, rule string) (cniArgs, error) {
		return a, attach.Fail(codeEnvironment, "invalid environment variable CNI_ARGS",
			"CNI_ARGS: invalid value %q: must be %s", diag.Excerpt(pair, diag.MaxExcerpt), rule)
	}
	for pair := range strings.SplitSeq(p.getenv("CNI_ARGS"), ";") {
		if pair == "" {
			continue
		}
		key, v, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return bad(pair, "KEY=VALUE pairs separated by semicolons")
		}
		// The keys of the conventions come first. An unknown key is collected and not yet an error, because
		// IgnoreUnknown can follow it.
		switch {
		case key == "IgnoreUnknown":
			if ignore.UnmarshalText([]byte(v)) != nil {
				return bad(pair, "IgnoreUnknown=true or false")
			}
		case key == "K8S_POD_NAMESPACE":
			if a.namespace = v; v != "" && !name.IsLabel(v) {
				return bad(pair, "K8S_POD_NAMESPACE with the name of a namespace")
			}
		case key == "K8S_POD_NAME":
			a.pod = v
		case key == "IP":
			a.ips = nil
			if v != "" {
				a.ips = strings.Split(v, ",")
			}
		case key == "MAC":
			a.mac = v
		case !slices.Contains(kubernetesArgs, key):
			unknown = append(unknown, pair)
		}
	}
	if len(unknown) > 0 && !bool(ignore) {
		return bad(strings.Join(unknown, ";"), "only known keys, or IgnoreUnknown=true")
	}
	for _, ip := range a.ips {
		if !network.IsIP(ip) {
			return bad("IP="+ip, "comma-separated IP addresses, with or without prefix length")
		}
	}
	if a.mac != "" {
		mac, rule := attachment.ParseMAC(a.mac)
		if rule != "" {
			return bad("MAC="+a.mac, rule)
		}
		a.mac = mac
	}
	return a, nil
}
