// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"maps"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/pkg/wording"
)

// The annotation keys.
const (
	// Domain is the domain of Jackfield's annotation keys. Every key in it
	// must be one that is known here.
	Domain = "jackfield.dev"
	// DevicesKey asks for devices.
	DevicesKey = "devices." + Domain
	// NetworksKey chooses among the pod's networks.
	NetworksKey = "networks." + Domain
	// CDIPrefix begins the keys of CDI's own annotations.
	CDIPrefix = "cdi.k8s.io/"
)

// The scopes a key may carry after a slash, as NRI users know them.
const (
	scopePod       = "pod"
	scopeContainer = "container."
)

// HasAny reports whether any annotation concerns Jackfield, a mistyped one
// included. It is what a pod that asks for nothing costs, and allocates
// nothing.
func HasAny(annotations map[string]string) bool {
	for key := range annotations {
		if strings.HasPrefix(key, CDIPrefix) || inDomain(key) {
			return true
		}
	}
	return false
}

// inDomain reports whether the key belongs to Jackfield's domain. Case is
// disregarded: a key without a slash is all name to Kubernetes, so it lets
// Devices.Jackfield.dev pass, and it is certainly a mistake.
func inDomain(key string) bool {
	base, _, _ := strings.Cut(key, "/")
	at := len(base) - len(Domain)
	return at >= 0 && strings.EqualFold(base[at:], Domain) && (at == 0 || base[at-1] == '.')
}

// effective returns the annotation that applies to the container, with the
// key it was found under: the container's own before the pod's.
func effective(annotations map[string]string, key, container string) (found, value string, ok bool) {
	if container != "" {
		found = key + "/" + scopeContainer + container
		if value, ok = annotations[found]; ok {
			return found, value, true
		}
	}
	found = key + "/" + scopePod
	if value, ok = annotations[found]; ok {
		return found, value, true
	}
	value, ok = annotations[key]
	return key, value, ok
}

// checkKeys refuses a key of Jackfield's domain that Jackfield does not know.
// Of several the first in sort order is reported.
func checkKeys(annotations map[string]string) error {
	unknown, found := "", false
	for key := range annotations {
		if inDomain(key) && !known(key) && (!found || key < unknown) {
			unknown, found = key, true
		}
	}
	if !found {
		return nil
	}
	rule := "not a key of Jackfield's"
	if near := nearestKey(unknown); near != "" {
		rule += " (did you mean " + quote(near) + "?)"
	}
	rule += "; the keys are " + DevicesKey + " and " + NetworksKey +
		", each alone or with /pod or /container.NAME behind it"
	return &Error{Key: unknown, Rule: rule}
}

func known(key string) bool {
	base, scope, scoped := strings.Cut(key, "/")
	if base != DevicesKey && base != NetworksKey {
		return false
	}
	return !scoped || scope == scopePod || strings.HasPrefix(scope, scopeContainer) && scope != scopeContainer
}

// OfOneContainer reports whether the key is one of Jackfield's that names a container,
// which no other container sees.
func OfOneContainer(key string) bool {
	_, scope, _ := strings.Cut(key, "/")
	return known(key) && strings.HasPrefix(scope, scopeContainer)
}

// nearestKey returns the known key that the given one was probably meant to
// be, or "".
func nearestKey(key string) string {
	base, scope, scoped := strings.Cut(strings.ToLower(key), "/")
	if base == Domain {
		return wording.Nearest(scope+"."+Domain, DevicesKey, NetworksKey)
	}
	base = wording.Nearest(base, DevicesKey, NetworksKey)
	if base == "" {
		return ""
	}
	if !scoped {
		return base
	}
	// A container's name is kept as it is, whatever was made of the word
	// before it.
	word, name, dotted := strings.Cut(scope, ".")
	switch {
	case dotted && name != "" && wording.Nearest(word, "container") != "":
		return base + "/" + scopeContainer + name
	case !dotted && wording.Nearest(word, scopePod) != "":
		return base + "/" + scopePod
	}
	return ""
}

// cdiKeys returns the keys of CDI's own annotations, sorted.
func cdiKeys(annotations map[string]string) []string {
	var keys []string
	for key := range annotations {
		if strings.HasPrefix(key, CDIPrefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// MisspeltKey returns the key of Jackfield's that a key of another domain was probably
// meant to be, such as devices.jackfeild.dev, or "". A wrong key of Jackfield's own domain
// is an error of [Parse].
func MisspeltKey(key string) string {
	if inDomain(key) {
		return ""
	}
	if near := nearestKey(key); near != "" {
		return near
	}
	base, _, _ := strings.Cut(strings.ToLower(key), "/")
	return wording.Nearest(base, DevicesKey, NetworksKey, Domain)
}

// ContainerOf returns the name of the one container that a key of Jackfield's or of
// device-injector's is for, "" where it is for all containers of the pod.
func ContainerOf(key string) string {
	_, scope, _ := strings.Cut(key, "/")
	name, ok := strings.CutPrefix(scope, scopeContainer)
	if !ok || !known(key) && !isInjectorKey(key) {
		return ""
	}
	return name
}

// WithoutNetworks returns the annotations of a container that wants the same devices and no networks.
func WithoutNetworks(annotations map[string]string, container string) map[string]string {
	out := maps.Clone(annotations)
	key := NetworksKey
	if container != "" {
		key += "/" + scopeContainer + container
	}
	delete(out, NetworksKey+"/"+scopePod)
	out[key] = keywordNone
	return out
}
