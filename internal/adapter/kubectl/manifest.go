// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"encoding/json"
	"strings"
)

// podManifest is the part of a pod that explain reads, see manifest.Pod. Nothing else leaves for the plugin's pod: the
// rest of a pod, such as the values of variables, arguments and probes, can have secrets.
type podManifest struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Metadata   struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		UID         string            `json:"uid,omitempty"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Spec struct {
		RuntimeClassName    string              `json:"runtimeClassName,omitempty"`
		SecurityContext     json.RawMessage     `json:"securityContext,omitempty"`
		InitContainers      []containerManifest `json:"initContainers,omitempty"`
		Containers          []containerManifest `json:"containers,omitempty"`
		EphemeralContainers []containerManifest `json:"ephemeralContainers,omitempty"`
		ResourceClaims      json.RawMessage     `json:"resourceClaims,omitempty"`
	} `json:"spec"`
	Status struct {
		ResourceClaimStatuses json.RawMessage `json:"resourceClaimStatuses,omitempty"`
	} `json:"status"`
}

type containerManifest struct {
	Name            string          `json:"name"`
	RestartPolicy   string          `json:"restartPolicy,omitempty"`
	Image           string          `json:"image,omitempty"`
	Command         []string        `json:"command,omitempty"`
	Env             []variable      `json:"env,omitempty"`
	VolumeMounts    []volumeMount   `json:"volumeMounts,omitempty"`
	Resources       json.RawMessage `json:"resources,omitempty"`
	SecurityContext json.RawMessage `json:"securityContext,omitempty"`
}

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

type volumeMount struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
}

const (
	// lastApplied is kubectl's copy of the whole manifest.
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	// allocatedDevices begins the variables in which device plugins name a container's devices.
	allocatedDevices = "PCIDEVICE_"
)

// reduceManifest returns the part of a pod's manifest that explain reads.
func reduceManifest(pod string) (string, error) {
	var p podManifest
	if err := json.Unmarshal([]byte(pod), &p); err != nil {
		return "", &failure{text: "read the answer of kubectl: " + err.Error(), code: exitError}
	}
	delete(p.Metadata.Annotations, lastApplied)
	for _, list := range [][]containerManifest{p.Spec.InitContainers, p.Spec.Containers, p.Spec.EphemeralContainers} {
		for i := range list {
			list[i].reduce()
		}
	}
	data, err := json.Marshal(&p)
	return string(data), err
}

// reduce removes the values of variables, and all arguments: hooks are matched with the program only.
func (c *containerManifest) reduce() {
	if len(c.Command) > 0 {
		c.Command = c.Command[:1]
	}
	for i := range c.Env {
		if !strings.HasPrefix(c.Env[i].Name, allocatedDevices) {
			c.Env[i].Value = ""
		}
	}
}
