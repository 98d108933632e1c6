// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"maps"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// The annotation keys.
const (
	// Domain is the domain of Jackfield's annotation keys. Any other key in it is an error.
	Domain = "jackfield.dev"
	// DevicesKey requests devices.
	DevicesKey = "devices." + Domain
	// NetworksKey selects among the pod's networks.
	NetworksKey = "networks." + Domain
	// CDIPrefix begins the keys of CDI's own annotations.
	CDIPrefix = "cdi.k8s.io/"
)

// The scopes that can follow the slash in a key, like in NRI's own plugins.
const (
	scopePod       = "pod"
	scopeContainer = "container."
)

// HasAny reports whether any annotation concerns Jackfield, including a mistyped one. It runs for
// every container of the node and does not allocate.
func HasAny(annotations map[string]string) bool {
	for key := range annotations {
		if strings.HasPrefix(key, CDIPrefix) || inDomain(key) {
			return true
		}
	}
	return false
}

// inDomain reports whether the key is in Jackfield's domain, ignoring case. Kubernetes accepts
// Devices.Jackfield.dev, which is a mistake.
func inDomain(key string) bool {
	base, _, _ := strings.Cut(key, "/")
	at := len(base) - len(Domain)
	return at >= 0 && strings.EqualFold(base[at:], Domain) && (at == 0 || base[at-1] == '.')
}

// findEffective returns the annotation that applies to the container, with its full key. The
// container's own form comes before the pod's.
func findEffective(annotations map[string]string, key, container string) (found, value string, ok bool) {
	for _, scope := range scopes(container) {
		if value, ok = annotations[key+scope]; ok {
			return key + scope, value, true
		}
	}
	return key, "", false
}

// scopes returns the suffixes of a key that apply to a container, the most specific first.
func scopes(container string) []string {
	all := []string{"/" + scopeContainer + container, "/" + scopePod, ""}
	if container == "" {
		return all[1:]
	}
	return all
}

// checkName returns an error for an annotation of one container if the name of the container is unknown. CRI-O knows it
// only by a label of the kubelet.
func checkName(annotations map[string]string, container string) error {
	if container != "" {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if ContainerOf(key) != "" {
			return &Error{Key: key, Rule: "the runtime reports no name for this container, so the annotation may be for it; " +
				"create the container with the label io.kubernetes.container.name, as the kubelet does, or use /pod in the key"}
		}
	}
	return nil
}

// checkKeys returns an error for the first unknown key of Jackfield's domain, in sort order.
func checkKeys(annotations map[string]string) error {
	unknown := ""
	for key := range annotations {
		if inDomain(key) && !isKnownKey(key) && (unknown == "" || key < unknown) {
			unknown = key
		}
	}
	if unknown == "" {
		return nil
	}
	rule := "not a key of Jackfield's"
	if near := nearestKey(unknown); near != "" {
		rule += " (did you mean " + diag.Quote(near) + "?)"
	}
	rule += "; the keys are " + DevicesKey + " and " + NetworksKey +
		", each alone or followed by /pod or /container.NAME"
	return &Error{Key: unknown, Rule: rule}
}

func isKnownKey(key string) bool {
	base, scope, scoped := strings.Cut(key, "/")
	if base != DevicesKey && base != NetworksKey {
		return false
	}
	return !scoped || scope == scopePod || strings.HasPrefix(scope, scopeContainer) && scope != scopeContainer
}

// IsContainerScoped reports whether the key belongs to Jackfield and applies to one container.
func IsContainerScoped(key string) bool {
	return isKnownKey(key) && ContainerOf(key) != ""
}

// nearestKey returns the known key that was probably meant, or "".
func nearestKey(key string) string {
	base, scope, scoped := strings.Cut(strings.ToLower(key), "/")
	if base == Domain {
		return diag.Nearest(scope+"."+Domain, DevicesKey, NetworksKey)
	}
	base = diag.Nearest(base, DevicesKey, NetworksKey)
	if base == "" {
		return ""
	}
	if !scoped {
		return base
	}
	word, name, dotted := strings.Cut(scope, ".")
	switch {
	case dotted && name != "" && diag.Nearest(word, "container") != "":
		return base + "/" + scopeContainer + name
	case !dotted && diag.Nearest(word, scopePod) != "":
		return base + "/" + scopePod
	}
	return ""
}

// MisspeltKey returns the Jackfield key that a key of another domain, such as
// devices.jackfeild.dev, was probably meant to be, or "". A wrong key in Jackfield's own domain is
// an error of [Parse].
func MisspeltKey(key string) string {
	if inDomain(key) {
		return ""
	}
	if near := nearestKey(key); near != "" {
		return near
	}
	base, _, _ := strings.Cut(strings.ToLower(key), "/")
	return diag.Nearest(base, DevicesKey, NetworksKey, Domain)
}

// ContainerOf returns the container of a Jackfield or device-injector key; "" if it applies to all
// containers of the pod.
func ContainerOf(key string) string {
	_, scope, _ := strings.Cut(key, "/")
	name, ok := strings.CutPrefix(scope, scopeContainer)
	if !ok || !isKnownKey(key) && !isInjectorKey(key) {
		return ""
	}
	return name
}
