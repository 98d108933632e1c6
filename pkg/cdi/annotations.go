// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// AnnotationPrefix begins the keys of annotations that request CDI devices.
const AnnotationPrefix = "cdi.k8s.io/"

// AnnotationKey returns the key under which a device plugin requests CDI devices for one of its devices. The plugin's
// name has the form "vendor.device-type".
func AnnotationKey(plugin, deviceID string) (string, error) {
	key := AnnotationPrefix + plugin + "_" + strings.ReplaceAll(deviceID, "/", "_")
	switch {
	case plugin == "":
		return "", fmt.Errorf("make CDI annotation: the plugin's name is empty: %w", errdefs.ErrInvalidArgument)
	case deviceID == "":
		return "", fmt.Errorf("make CDI annotation: the device ID is empty: %w", errdefs.ErrInvalidArgument)
	}
	if err := validateAnnotationKey(key); err != nil {
		return "", fmt.Errorf("make CDI annotation %q: %w: %w", key, err, errdefs.ErrInvalidArgument)
	}
	return key, nil
}

// AnnotationValue returns the value that requests the devices with the given qualified names.
func AnnotationValue(devices []string) (string, error) {
	for _, name := range devices {
		if _, _, _, err := ParseQualifiedName(name); err != nil {
			return "", err
		}
	}
	return strings.Join(devices, ","), nil
}

// UpdateAnnotations adds the annotation by which a device plugin requests devices to a map, which can be nil. A key
// that the map already has is an errdefs.ErrAlreadyExists. After an error the map is unchanged.
func UpdateAnnotations(annotations map[string]string, plugin, deviceID string, devices []string) (
	map[string]string, error) {
	key, err := AnnotationKey(plugin, deviceID)
	if err != nil {
		return annotations, err
	}
	if _, ok := annotations[key]; ok {
		return annotations, fmt.Errorf("make CDI annotation %q: the key is in use: %w", key, errdefs.ErrAlreadyExists)
	}
	value, err := AnnotationValue(devices)
	if err != nil {
		return annotations, err
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	return annotations, nil
}

// ParseAnnotations returns the keys of the annotations that request CDI devices, sorted, and the qualified names of
// these devices in the order of the keys.
func ParseAnnotations(annotations map[string]string) (keys, devices []string, err error) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if !strings.HasPrefix(key, AnnotationPrefix) {
			continue
		}
		keys = append(keys, key)
		for name := range strings.SplitSeq(annotations[key], ",") {
			if _, _, _, err := ParseQualifiedName(name); err != nil {
				return nil, nil, fmt.Errorf("parse annotation %q: %w", key, err)
			}
			devices = append(devices, name)
		}
	}
	return keys, devices, nil
}
