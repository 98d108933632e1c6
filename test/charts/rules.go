// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// Check checks a DaemonSet against rules of the API server that its types do not express
// (k8s.io/kubernetes, pkg/apis/core/validation), and returns the violations.
func Check(ds *apps.DaemonSet) []string {
	var found []string
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	pod := ds.Spec.Template
	for k, v := range ds.Spec.Selector.MatchLabels {
		if pod.Labels[k] != v {
			fault("spec.selector: %s=%s does not match the template's labels", k, v)
		}
	}
	if len(ds.Spec.Selector.MatchLabels) == 0 {
		fault("spec.selector: empty")
	}
	if p := pod.Spec.RestartPolicy; p != "" && p != core.RestartPolicyAlways {
		fault("spec.template.spec.restartPolicy: %s", p)
	}
	volumes := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		if !label.MatchString(v.Name) || len(v.Name) > 63 {
			fault("volume %q: want a DNS label", v.Name)
		}
		if volumes[v.Name] {
			fault("volume %q: twice", v.Name)
		}
		volumes[v.Name] = true
		if v.HostPath != nil && slices.Contains(strings.Split(v.HostPath.Path, "/"), "..") {
			fault("volume %q: path %q", v.Name, v.HostPath.Path)
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, f := range checkContainer(c, volumes) {
			fault("container %q: %s", c.Name, f)
		}
	}
	return found
}

func checkContainer(c core.Container, volumes map[string]bool) []string {
	var found []string
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if !label.MatchString(c.Name) || c.Image == "" {
		fault("name or image is invalid")
	}
	sc := c.SecurityContext
	privileged := sc != nil && sc.Privileged != nil && *sc.Privileged
	if privileged && sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation {
		fault("cannot be privileged and refuse privilege escalation")
	}
	if sc != nil && sc.Capabilities != nil && sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation &&
		(slices.Contains(sc.Capabilities.Add, "SYS_ADMIN") || slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN")) {
		fault("cannot add SYS_ADMIN and refuse privilege escalation")
	}
	places := map[string]bool{}
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			fault("mount %q: no volume %q", m.MountPath, m.Name)
		}
		if places[m.MountPath] || !path.IsAbs(m.MountPath) {
			fault("mount %q: twice, or not absolute", m.MountPath)
		}
		places[m.MountPath] = true
		if m.MountPropagation != nil && *m.MountPropagation == core.MountPropagationBidirectional && !privileged {
			fault("mount %q: Bidirectional is for privileged containers", m.MountPath)
		}
	}
	return found
}
